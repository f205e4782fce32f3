"""Probes that profile their own process with CUPTI, and what that excludes. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallprobes.engine.backend import Options
from stallprobes.errors import Unsupported
from stallprobes.model import Op, Probe, Process
from stallprobes.records.timeline import TimelineProblem, TimelineStatus

CUPTI = "cupti:"
_FINALIZE = f"{CUPTI}cuptiFinalize"
_GRAPH_LAUNCH = "cuGraphLaunch"


def check_profilers(probes: Sequence[Probe], options: Options) -> None:
    """Raise Unsupported for the profilers among ``probes`` that cannot run beside the timeline or other probes.

    A process has one user of CUPTI. ``cuptiFinalize`` while graph launches are in flight loses the context
    (CUDA_ERROR_LAUNCH_FAILED).
    """
    taken = timeline_refusal(probes)
    if options.timeline and taken is not None:
        raise Unsupported(f"{taken.found}, so that the timeline cannot be on", *_profilers(probes, Process.ENGINE))
    for process in Process:
        detaching = [name for name, functions in _profilers(probes, process).items() if _FINALIZE in functions]
        graphs = [one.name for one in probes if one.program.process is process and _GRAPH_LAUNCH in _functions(one)]
        if detaching and graphs:
            raise Unsupported(f"cuptiFinalize beside the graph launches of {graphs[0]} loses the context", *detaching)


def timeline_refusal(probes: Sequence[Probe]) -> TimelineStatus | None:
    """The state of a timeline that is switched on beside ``probes``, if one of them uses CUPTI; else None."""
    name = next(iter(_profilers(probes, Process.ENGINE)), None)
    if name is None:
        return None
    found = f"the probe {name} uses CUPTI in the engine's process"
    return TimelineStatus(False, TimelineProblem.TAKEN, found, "switch the timeline on with other probes")


def _profilers(probes: Sequence[Probe], process: Process) -> dict[str, set[str]]:
    """The functions of each profiler of ``process`` by its name."""
    functions = {probe.name: _functions(probe) for probe in probes if probe.program.process is process}
    return {name: called for name, called in functions.items() if any(fn.startswith(CUPTI) for fn in called)}


def _functions(probe: Probe) -> set[str]:
    return {op.fn for op in _ops(probe)}


def _ops(probe: Probe) -> Iterator[Op]:
    yield from probe.program.setup
    yield from probe.program.ops
    yield from probe.program.teardown
