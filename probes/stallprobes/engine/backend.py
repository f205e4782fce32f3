"""Interface between the engine and a backend (host, CUDA, simulated GPU), the options of a session, and which of them
exclude probes: those that profile their own process with CUPTI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from stallprobes.errors import EXIT_ENGINE, BackendError, Unsupported
from stallprobes.model import MS, Op, Probe, Process, Program
from stallprobes.records.timeline import TimelineProblem, TimelineStatus

if TYPE_CHECKING:
    # The board imports NumPy; importing the options must stay cheap.
    from stallprobes.engine.board import Board

# Number of bytes of a gibibyte.
GIB = 1 << 30
# Prefix of CUPTI's functions in the program of a probe that profiles its own process.
CUPTI = "cupti:"
# Function in a probe's program that detaches CUPTI from its process.
_FINALIZE = f"{CUPTI}cuptiFinalize"
# Function in a probe's program that launches a graph. Detaching CUPTI while a graph runs loses the context
# (CUDA_ERROR_LAUNCH_FAILED). A session is therefore refused if one process would launch graphs and detach CUPTI.
_GRAPH_LAUNCH = "cuGraphLaunch"


@dataclass(frozen=True)
class Options:
    """Settings of a session; the defaults are safe on a shared server.

    For all backends with a GPU:

    - ``gpu``: index, UUID or PCI address of the GPU; separate two with a comma. None: the first GPU.
    - ``watchdog_ns``: time in ns after which a gate that is still closed opens by itself.
    - ``max_memory``: most GPU memory in bytes that all buffers of the session may take together.
    - ``together``: victims of different contexts run at the same time instead of in slots, and wait for each other's
      change-over.
    - ``timeline``: record what the GPU does from the beginning; it can be switched at any time.
    - ``without_mps``: the engine is no client of an MPS server, whose clients would share its errors.

    For the simulated GPU only:

    - ``profile``: name of a profile, or path of a TOML file. None: the default profile.
    - ``seed``: seed of the random latencies; the same seed gives the same samples.
    - ``sim_set``: profile parameters to override, by name, as text.
    - ``paced``: whether virtual time follows the wall clock. False: time passes only in ``Session.run_for``.
    """

    gpu: str | None = None
    profile: str | None = None
    seed: int = 1
    sim_set: Mapping[str, str] = field(default_factory=dict)
    paced: bool = False
    watchdog_ns: int = 250 * MS
    max_memory: int = GIB
    together: bool = False
    timeline: bool = False
    without_mps: bool = False


@contextmanager
def on_behalf_of(probe: Probe) -> Iterator[None]:
    """Adds the name of ``probe`` to an Unsupported that is raised inside the block."""
    try:
        yield
    except Unsupported as error:
        raise Unsupported(error.reason, *(error.probes or (probe.name,))) from error


def for_each(probes: Iterable[Probe], prepare: Callable[[Probe], None]) -> None:
    """Call ``prepare`` with each probe.

    Raises one Unsupported for all refused probes, with the reason of the first one, so that a session without these
    probes does not fail again for the same reason.
    """
    refused: list[Unsupported] = []
    for probe in probes:
        try:
            with on_behalf_of(probe):
                prepare(probe)
        except Unsupported as error:
            refused.append(error)
    if refused:
        reason = refused[0].reason
        names = [name for error in refused if error.reason == reason for name in error.probes]
        raise Unsupported(reason, *names) from refused[0]


@dataclass(frozen=True)
class ProbeFailure:
    """A probe that stopped because a call returned an unexpected code.

    ``op`` is the function of the call with its label, ``code`` its return code and ``text`` the meaning of the code.
    ``fatal``: the error makes the contexts of all probes unusable.
    """

    probe: str
    op: str
    code: int
    text: str
    fatal: bool = False

    @property
    def sentence(self) -> str:
        """The failure as one sentence."""
        return f"{self.probe}: {self.op} returned {self.code} ({self.text})"


def failed_op(program: Program, number: int) -> Op:
    """The op that the board's ERROR_OP word names: 1, 2, … count ``ops``, -1, -2, … count ``setup``."""
    return program.ops[number - 1] if number > 0 else program.setup[-number - 1]


class Backend(Protocol):
    """One way to execute programs. A backend module has ``create() -> Backend``.

    The engine calls all methods from its main thread, in this order: ``prepare``, ``start``, then ``poll`` and
    ``advance`` repeatedly, then ``stop``.
    """

    @property
    def virtual(self) -> bool:
        """True if time is virtual, which passes only in ``advance``."""
        ...

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Create everything the probes need; returns a description (devices, contexts, parts of the fingerprint).

        Raises Unsupported or BackendError.
        """
        ...

    def start(self) -> None:
        """Start the probes' threads, each parked until its RUN word is 1. Returns when all setup ops are done."""
        ...

    def poll(self) -> list[ProbeFailure]:
        """Copy proof words to the board; returns the probes that failed since the last call. Must not block."""
        ...

    def advance(self, ns: int) -> None:
        """Advance virtual time by ``ns``. Raises BackendError if time is real."""
        ...

    def switch_timeline(self, on: bool) -> None:
        """Begin to switch the timeline on or off. Must not block."""
        ...

    def timeline(self) -> TimelineStatus | None:
        """The state of the timeline; None while a switch has not taken effect."""
        ...

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and end the threads; True if all ended within ``deadline_s`` seconds."""
        ...


def real_time_only() -> BackendError:
    """The error that ``advance`` raises on a backend with real time."""
    return BackendError(EXIT_ENGINE, "virtual time was requested from a backend whose time is real")


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
        graphs = [
            probe.name for probe in probes if probe.program.process is process and _GRAPH_LAUNCH in _functions(probe)
        ]
        if detaching and graphs:
            raise Unsupported(f"cuptiFinalize beside the graph launches of {graphs[0]} loses the context", *detaching)


def timeline_refusal(probes: Sequence[Probe]) -> TimelineStatus | None:
    """The state of a timeline beside ``probes`` if a probe uses CUPTI in the engine's process; else None."""
    name = next(iter(_profilers(probes, Process.ENGINE)), None)
    if name is None:
        return None
    reason = f"the probe {name} uses CUPTI in the engine's process"
    return TimelineStatus(False, TimelineProblem.TAKEN, reason, "switch the timeline on with other probes")


def _profilers(probes: Sequence[Probe], process: Process) -> dict[str, set[str]]:
    """The functions of each profiler of ``process`` by its name."""
    functions = {probe.name: _functions(probe) for probe in probes if probe.program.process is process}
    return {name: called for name, called in functions.items() if any(fn.startswith(CUPTI) for fn in called)}


def _functions(probe: Probe) -> set[str]:
    return {op.fn for op in probe.program.all_ops}
