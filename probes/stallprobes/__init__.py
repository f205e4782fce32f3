"""Measure how CUDA calls delay each other: the instrument of stallscope, without a screen or a command line.

    import stallprobes

    result = stallprobes.run("secondary-context-d2d", seconds=1.0, backend="sim")
    for variant in result.variants:
        for verdict in variant.verdicts:
            print(variant.variant, verdict.sentence)

``run`` measures patterns and probes, ``save_trace`` writes what its timeline recorded, ``check`` fills an interference
matrix, ``watched`` watches any CUDA program, ``compare`` compares two checks or runs of a watched program, ``unusual``
compares a check with recorded checks of other machines, ``load`` reads a saved check, and ``Session`` controls probes
step by step. Everything is loaded on first use. Measuring needs an NVIDIA GPU, or ``backend="sim"`` for the simulated
one. No function asks before it disturbs other processes on the GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from stallprobes.engine.backend import Options as Options
    from stallprobes.engine.session import Session as Session
    from stallprobes.latency.histogram import Histogram as Histogram
    from stallprobes.matrix.check.progress import CheckProgress as CheckProgress
    from stallprobes.matrix.comparing.comparison import Comparison as Comparison
    from stallprobes.matrix.matrix import Matrix as Matrix
    from stallprobes.matrix.reference import ReferenceComparison as ReferenceComparison
    from stallprobes.measurement.result import RunResult as RunResult
    from stallprobes.measurement.run_clock import RunProgress as RunProgress
    from stallprobes.traces.chrome import TitledTrace as TitledTrace
    from stallprobes.traces.trace import Trace as Trace
    from stallprobes.verdicts.kinds import VerdictKind as VerdictKind
    from stallprobes.verdicts.verdict import Verdict as Verdict
    from stallprobes.watch.attribution.findings import WatchFindings as WatchFindings
    from stallprobes.watch.comparing.comparison import RunsComparison as RunsComparison
    from stallprobes.watch.environment import WatchOptions as WatchOptions
    from stallprobes.watch.watched import Watched

    # A side of a comparison.
    Compared = Matrix | WatchFindings | Sequence[WatchFindings] | Path | str

# Module that defines each public name. A module is imported when one of its names is first used.
_HOMES = {
    "CheckProgress": "stallprobes.matrix.check.progress",
    "Comparison": "stallprobes.matrix.comparing.comparison",
    "Histogram": "stallprobes.latency.histogram",
    "Matrix": "stallprobes.matrix.matrix",
    "Options": "stallprobes.engine.backend",
    "ReferenceComparison": "stallprobes.matrix.reference",
    "RunProgress": "stallprobes.measurement.run_clock",
    "RunResult": "stallprobes.measurement.result",
    "RunsComparison": "stallprobes.watch.comparing.comparison",
    "Session": "stallprobes.engine.session",
    "TitledTrace": "stallprobes.traces.chrome",
    "Trace": "stallprobes.traces.trace",
    "Verdict": "stallprobes.verdicts.verdict",
    "VerdictKind": "stallprobes.verdicts.kinds",
    "WatchFindings": "stallprobes.watch.attribution.findings",
    "WatchOptions": "stallprobes.watch.environment",
}

__all__ = [*_HOMES, "check", "compare", "load", "run", "save_trace", "unusual", "watched"]


def run(
    names: str | Iterable[str],
    *,
    variants: Iterable[str] = (),
    seconds: float = 2.0,
    backend: str = "cuda",
    gpu: str | None = None,
    options: Options | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    blame: bool = False,
    timeline: bool = False,
    trace_seconds: float | None = None,
    traced: Callable[[TitledTrace], None] = lambda _: None,
) -> RunResult:
    """Measure patterns and probes: each variant's baseline, then the same calls with its aggressors running.

    ``names`` are patterns ("all" for every one) or probes (``ENTRY@CONTEXT/STREAM``); ``variants`` keeps only these
    variants of the patterns. ``seconds`` is the length of each measured window. ``backend`` is "cuda", "sim" or
    "host". ``gpu`` is an index as in nvidia-smi, a UUID or a PCI address; two are separated with a comma. ``stop`` is
    called every 0.1 s: once it returns True, the result has what was measured until then. ``blame`` adds an experiment
    that switches each aggressor on and off, to find which of them is the cause. ``timeline`` measures the start on the
    GPU and the time there too (phases start, early and gpu); each call then takes 1 to 10 µs longer. With
    ``trace_seconds``, which includes ``timeline``, ``traced`` is called with the trace of each variant: all calls and
    GPU work of the last so many seconds before its aggressors are switched off. ``save_trace`` writes it for Perfetto.

    Raises UnknownName for a name that does not exist, NoGpu where no usable GPU is chosen, NoTimeline where the
    timeline cannot be switched on, EngineFailed where nothing could be measured, and ValueError for ``blame`` without
    an aggressor or a victim.
    """
    from stallprobes.measurement import measure
    from stallprobes.measurement.plan import plan, selection

    chosen = selection([names] if isinstance(names, str) else list(names), list(variants))
    planned = plan(chosen, seconds=seconds, together=options is not None and options.together, blame=blame)
    return measure.run(
        planned,
        backend=backend,
        options=_options(options, backend, gpu, planned.gpus, timeline),
        progress=progress,
        stop=stop,
        trace_s=trace_seconds,
        traced=traced,
    )


def save_trace(
    traced: Trace | Sequence[TitledTrace], path: Path | str, *, result: RunResult | None = None, force: bool = False
) -> None:
    """Write one trace, or those of a run, to a file that Perfetto and chrome://tracing open.

    The file says what was measured if ``result`` is the run's. It is compressed with gzip if its name ends in ``.gz``;
    an existing one is replaced only with ``force``. Raises FileNotWritten, and ValueError without a trace.
    """
    from stallprobes.measurement import run_trace
    from stallprobes.traces.chrome import TitledTrace
    from stallprobes.traces.trace import Trace

    traces = [TitledTrace(traced)] if isinstance(traced, Trace) else traced
    run_trace.save(result, traces, path, force=force)


def check(
    *,
    victims: Iterable[str] = (),
    aggressors: Iterable[str] = (),
    patterns: Iterable[str] = (),
    quick: bool = False,
    timeline: bool = False,
    seed: int = 1,
    backend: str = "cuda",
    gpu: str | None = None,
    options: Options | None = None,
    progress: Callable[[CheckProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Matrix:
    """Measure every victim beside every aggressor, each pair against its own baseline.

    Without names the default check is measured, about 70 s on a GPU; ``quick`` takes about 12 s. ``seed`` sets the
    order of the cells. The other arguments are those of ``run``. Raises what ``run`` raises.
    """
    from stallprobes.matrix.check import runner
    from stallprobes.matrix.check.plan import plan

    chosen = plan(list(victims), list(aggressors), list(patterns), quick=quick)
    return runner.run(
        chosen,
        backend=backend,
        options=_options(options, backend, gpu, chosen.gpus, timeline),
        seed=seed,
        progress=progress,
        stop=stop,
    )


@overload
def compare(old: Matrix, new: Matrix, *, force: bool = False) -> Comparison: ...
@overload
def compare(
    old: WatchFindings | Sequence[WatchFindings], new: WatchFindings | Sequence[WatchFindings], *, force: bool = False
) -> RunsComparison: ...
@overload
def compare(old: Compared, new: Compared, *, force: bool = False) -> Any: ...
def compare(old: Any, new: Any, *, force: bool = False) -> Any:
    """Compare two checks, cell by cell, or runs of a watched program before and after a change.

    Each side is a check, a report of ``watched``, a list of such reports, or the path of a saved check or of a file of
    ``stallscope watch --save``. The result is a Comparison for checks, a RunsComparison for runs.

    Raises NotComparable for checks of different kinds of GPU or settings, or runs on different kinds of GPU, unless
    ``force``, and for a check and runs; TimelinesDiffer, a NotComparable, even with ``force`` if only one check was
    made with the timeline; RunFileError, and what ``load`` raises; ValueError for a list without a report.
    """
    from stallprobes.matrix.matrix import Matrix

    sides: list[Matrix | Sequence[WatchFindings]] = [_compared(side) for side in (old, new)]
    checks = [side for side in sides if isinstance(side, Matrix)]
    runs = [side for side in sides if not isinstance(side, Matrix)]
    if checks and runs:
        from stallprobes.errors import NotComparable

        raise NotComparable("One side is a check, the other has runs of a program: compare two of a kind.")
    if runs:
        from stallprobes.watch.comparing.compare import compare as compare_runs

        return compare_runs(runs[0], runs[1], force=force)
    from stallprobes.matrix.comparing.compare import compare as compare_matrices

    return compare_matrices(checks[0], checks[1], force=force)


def _compared(side: Compared) -> Matrix | Sequence[WatchFindings]:
    """A side of a comparison as a check or as runs."""
    from stallprobes.matrix.matrix import Matrix

    if isinstance(side, Matrix):
        return side
    from pathlib import Path

    from stallprobes.watch.attribution.findings import WatchFindings
    from stallprobes.watch.comparing import run_file, run_kind

    if isinstance(side, str | Path):
        return run_file.load(Path(side)) if run_kind.holds_runs(Path(side)) else load(side)
    reports = [side] if isinstance(side, WatchFindings) else list(side)
    if not reports:
        raise ValueError("there is no report to compare")
    return reports


def watched(program: Sequence[str] | int, options: WatchOptions | None = None) -> Watched:
    """Watch a CUDA program that is started in a ``with`` block, or a process that runs, by its number.

        with stallprobes.watched(["python", "train.py"]) as watch:
            pass
        print(watch.report.processes[0].sequences[0].sentence)

    The block's end waits for the end of the program, or detaches from the process; ``report`` is then the tree of which
    ``stallscope watch --json`` is the JSON object. Inside the block it is the report until now. If the block raises, a
    started program gets SIGTERM. Entering and leaving the block raise WatchError, and OSError for a program that cannot
    be started.
    """
    from stallprobes.watch.environment import WatchOptions
    from stallprobes.watch.watched import Watched

    return Watched(program, options or WatchOptions())


def unusual(check: Matrix | Path | str, reference: str | None = None) -> ReferenceComparison | None:
    """The cells of a check that stall here and not on other machines of its GPU model, and the other way round.

    ``check`` may be the path of a saved one. ``reference`` is the name of a reference in the package, or the path of a
    ``.json`` file that ``python -m stallprobes.matrix.reference_maker`` wrote. By default it is the package's reference
    of the same GPU model with the nearest driver, and the result is None if there is none.

    Raises NotComparable where ``reference`` does not fit, CheckFileError where it cannot be read, and what ``load``
    raises.
    """
    from stallprobes.matrix import reference_choice
    from stallprobes.matrix.matrix import Matrix

    matrix = check if isinstance(check, Matrix) else load(check)
    if reference is None:
        return reference_choice.unusual(matrix)
    return reference_choice.load(reference).unusual(matrix)


def load(path: Path | str) -> Matrix:
    """Read a check saved by ``stallscope check --save``, compressed or not. Raises CheckFileError for anything else."""
    from stallprobes.matrix import check_file

    return check_file.load(path)


def _options(options: Options | None, backend: str, gpu: str | None, wanted: int, timeline: bool) -> Options:
    """``options`` with the UUIDs of the chosen GPUs, where any is needed, and with the timeline. Raises NoGpu."""
    from dataclasses import replace

    from stallprobes.engine.backend import Options
    from stallprobes.machine import gpus

    settings = options or Options()
    uuids = gpus.uuids(gpus.choose(gpu, gpus.survey(), wanted)) if backend == "cuda" else None
    return replace(settings, gpu=uuids or settings.gpu, timeline=timeline or settings.timeline)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("stallprobes.version").number()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
