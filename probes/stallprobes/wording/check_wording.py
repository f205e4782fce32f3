"""Wording of a check that text reports, the HTML page and the matrix screen share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import findings
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix, Status
from stallprobes.matrix.noise import baseline_spread
from stallprobes.model import Channel, Phase
from stallprobes.units import duration_ns, plural, times
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.wording.timeline_wording import start_clause

if TYPE_CHECKING:
    from stallprobes.matrix.findings import CauseGroup
    from stallprobes.matrix.outliers import Outlier
    from stallprobes.verdicts.verdict import Verdict

# Title of the matrix with figures.
MATRIX_TITLE = "Latency relative to baseline, call/wait"
# Title of the matrix with symbols.
SYMBOLS_TITLE = "Each aggressor with each victim; on the right the worst ratio to the baseline"
# Title of the list of causes.
CAUSES_TITLE = "Worst case and remedy by cause"
# Titles of the lists of cells (each an aggressor with a victim) that have no result.
UNMEASURED_TITLES = {
    Status.INVALID: "Measured, but not counted",
    Status.UNSUPPORTED: "Not supported on this machine",
}
# Sentence in place of an unknown cause, and in place of an unknown remedy.
NO_CAUSE = "No cause is known."
# Largest number of cells (each an aggressor with a victim) of one host that a merged report names.
_CELLS_PER_HOST = 5


def cell_name(cell: Cell) -> str:
    """``launch beside spin``, ``launch alone``."""
    return f"{cell.row} alone" if cell.column == QUIET else f"{cell.row} beside {cell.column}"


def variation(matrix: Matrix) -> str:
    """A sentence on how much the machine itself varies between the baselines of a check; "" if that is not known."""
    spread = baseline_spread(matrix)
    if spread is None:
        return ""
    what = "Each machine" if matrix.hosts else "The simulated machine" if matrix.simulated else "This machine"
    return (
        f"{what} varies by {times(spread.typical)} at p50 between the baselines of a victim, with no aggressor running "
        f"(median over victims; worst {times(spread.worst)}: {spread.worst_row})."
    )


def machine_name(matrix: Matrix) -> str:
    """The machine that was measured: GPU, driver and CUDA, or the simulated GPU's profile and seed."""
    machine = matrix.fingerprint
    if matrix.simulated:
        return f"SIMULATED GPU, {profile_name(matrix)}"
    gpu = str(machine.get("gpu") or "no GPU")
    if matrix.hosts:
        return f"{len(matrix.hosts)} machines merged · {gpu}"
    return f"{gpu} · driver {machine.get('driver') or 'n/a'} · CUDA {machine.get('cuda') or 'n/a'}"


def profile_name(matrix: Matrix) -> str:
    """Profile and seed of a simulated GPU: ``profile h200, seed 7``."""
    seed = "" if matrix.sim_seed is None else f", seed {matrix.sim_seed}"
    return f"profile {matrix.profile or 'unknown'}{seed}"


def check_title(matrix: Matrix) -> str:
    """A check in one line: machine, size, repeats, duration and time."""
    beside = sum(column.name != QUIET for column in matrix.columns)
    size = f"{plural(len(matrix.rows), 'victim')} × {plural(beside, 'aggressor')}"
    quick = "quick, " if matrix.quick else ""
    repeats = f"{quick}{repeat_count(matrix)} in {matrix.seconds:.0f} s"
    interrupted = " · interrupted" if matrix.interrupted else ""
    timeline = " · with the timeline" if matrix.timeline else ""
    return f"{machine_name(matrix)} · {size} · {repeats} · {matrix.started_at}{timeline}{interrupted}"


def repeat_count(matrix: Matrix) -> str:
    """Number of repeats of a cell: ``4 repeats``, or ``4 to 8 repeats`` if cells that disagreed have more."""
    most = 0 if matrix.hosts else max((len(cell.repeats) for cell in matrix.cells.values()), default=0)
    if most <= matrix.repeats:
        return plural(matrix.repeats, "repeat")
    return f"{matrix.repeats} to {plural(most, 'repeat')}"


def kind_counts(matrix: Matrix) -> str:
    """Number of cells by kind: ``3 STALLED, 1 drift, 290 quiet``."""
    counts = findings.counts(matrix)
    return ", ".join(f"{number} {kind.look.word}" for kind, number in counts.items()) or "nothing measured"


def unmeasured_count(matrix: Matrix) -> str:
    """``12 cells unsupported, 1 cell invalid``; "" when there is none."""
    counts = findings.counts(matrix)
    return ", ".join(
        f"{plural(counts[status], 'cell')} {status.look.word}" for status in UNMEASURED_TITLES if status in counts
    )


def worst_case(group: CauseGroup) -> str:
    """``launch beside spin: call p50 2.70 µs → 2.26 ms (×837); 3 more cells``."""
    more = group.size - 1
    case = f"{cell_name(group.worst)}: {worst_figure(group.worst)}"
    return f"{case}; {plural(more, 'more cell')}" if more else case


def figures(cell: Cell) -> str:
    """Findings of ``cell`` in figures: ``call p50 2.70 µs → 2.26 ms (×837), wait …``."""
    return ", ".join(_figure(cell, verdict) for verdict in findings.verdicts(cell)) or cell.shown_kind.look.word


def worst_figure(cell: Cell) -> str:
    """The worst finding of ``cell``: ``call p50 2.70 µs → 2.26 ms (×837)``, ``0 calls in 0.8 s``, ``cuLaunchKernel in
    flight for 1.20 s``."""
    verdicts = findings.verdicts(cell)
    if verdicts and verdicts[0].quantile is Quantile.IN_FLIGHT:
        waits = in_flight(cell)
        if verdicts[0].kind is not VerdictKind.STARVED and waits:
            return waits
        return _returned(cell, verdicts[0], verb="")
    return _figure(cell, verdicts[0]) if verdicts else cell.shown_kind.look.word


def short_figure(cell: Cell) -> str:
    """The worst finding of ``cell`` in a word: ``×837``, ``STARVED``."""
    verdicts = findings.verdicts(cell)
    if not verdicts or verdicts[0].ratio is None or verdicts[0].quantile is Quantile.IN_FLIGHT:
        return cell.shown_kind.look.word
    return times(verdicts[0].ratio)


def in_flight(cell: Cell) -> str:
    """``cuMemcpyDtoHAsync in flight for 1.20 s`` for a call older than 100 ms, else ""."""
    if cell.in_flight_ns is None or cell.in_flight_ns < IN_FLIGHT_NS:
        return ""
    return f"{cell.in_flight_op or 'a call'} in flight for {duration_ns(cell.in_flight_ns)}"


def _figure(cell: Cell, verdict: Verdict) -> str:
    if verdict.quantile is Quantile.IN_FLIGHT:
        returned = f"{verdict.kind.look.word}: {_returned(cell, verdict)}"
        # The verdict has the age of its own window; the cell has the longest.
        return ", ".join(part for part in (returned, in_flight(cell)) if part)
    if verdict.kind is VerdictKind.FAILED or verdict.ratio is None:
        return verdict.sentence
    change = f"{duration_ns(verdict.baseline_ns)} → {duration_ns(verdict.now_ns)} ({times(verdict.ratio)})"
    return f"{phase_name(verdict.phase)} {verdict.quantile} {change}{start_clause(cell, verdict)}".strip()


def _returned(cell: Cell, verdict: Verdict, verb: str = " returned") -> str:
    """Number of returned calls: ``2 calls returned in 0.8 s``, in a merged matrix with the host of the verdict."""
    # On another host the victim may not starve.
    windows = [repeat.window for repeat in cell.repeats if not verdict.host or repeat.host == verdict.host]
    calls, seconds = sum(window.iterations for window in windows), sum(window.duration_ns for window in windows) / 1e9
    return f"{plural(calls, 'call')}{verb} in {seconds:.1f} s{f' on {verdict.host}' if verdict.host else ''}"


def baseline_medians_ns(cell: Cell) -> list[float | None]:
    """The medians of call and wait over all operations, None for one without calls."""
    histograms = (cell.channels.get(Channel(phase)) for phase in PHASES)
    return [None if histogram is None else histogram.percentile(50) for histogram in histograms]


def phase_name(phase: Phase | None) -> str:
    """A phase in a report: ``call``, ``wait``, ``call from due time``."""
    return "" if phase is None else "call from due time" if phase is Phase.DUE else phase.traits.word


def channel_name(channel: Channel) -> str:
    """``call``, ``wait of cuMemcpyDtoHAsync``."""
    phase = phase_name(channel.phase)
    return f"{phase} of {channel.label}" if channel.label else phase


def host_sentences(outliers: Iterable[Outlier]) -> list[str]:
    """Sentences on the hosts of a merged matrix: for each the cells that differ most, each cell once."""
    worst: dict[str, dict[tuple[str, str], Outlier]] = {}
    for outlier in sorted(outliers, key=lambda outlier: abs(math.log(max(outlier.ratio, 1e-9))), reverse=True):
        worst.setdefault(outlier.host, {}).setdefault((outlier.row, outlier.column), outlier)
    sentences: list[str] = []
    for host, cells in worst.items():
        sentences += [shown.sentence for shown in list(cells.values())[:_CELLS_PER_HOST]]
        more = len(cells) - _CELLS_PER_HOST
        if more > 0:
            sentences.append(
                f"{host}: {plural(more, 'more cell')} differ{'s' if more == 1 else ''} from the other hosts."
            )
    return sentences


def fingerprint_items(fingerprint: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Keys and values of a fingerprint as text, without those that are unknown."""
    return tuple(
        (key.replace("_", " "), format_value(value))
        for key, value in fingerprint.items()
        if key != "unknown" and value is not None and value != {} and value != []
    )


def format_value(value: object) -> str:
    """A fingerprint's value as text."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value) or "none"
    return str(value)
