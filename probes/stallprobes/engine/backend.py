"""What the engine asks of whoever executes programs: the host alone, CUDA, or the simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from stallprobes.errors import EXIT_ENGINE, BackendError, Unsupported
from stallprobes.model import Phase

if TYPE_CHECKING:
    # The board needs NumPy, and who only names options shall not wait for that.
    from stallprobes.engine.board import Board
    from stallprobes.model import Probe

MS = 1_000_000
GIB = 1 << 30

# Exit codes of the process. 1 (a regression) and 130 (interrupted) are the command line's own.


@dataclass(frozen=True)
class Plant:
    """A stall made up on the simulated GPU, for tests of what must find it: while ``aggressor`` is on, one call in
    ``every`` of ``victim`` in ``phase`` lasts ``at_least_ns``. Both are probe names; the calls are drawn by chance."""

    victim: str
    aggressor: str
    phase: Phase
    at_least_ns: int
    every: int = 20


@dataclass(frozen=True)
class Options:
    """How a session is to run; every field has a default that is fit for a shared server.

    ``gpu`` names the GPU by index, UUID or PCI address, two of them by a comma; None is the first. ``profile``,
    ``seed``, ``sim_set`` and ``plant`` are for the simulated GPU, and ``paced`` makes its virtual time follow the
    clock on the wall; without ``rings`` it keeps no recent calls, for whoever does not look at them. ``watchdog_ns``
    is after how long a gate opens by itself. ``max_memory`` bounds the bytes of GPU memory that buffers take together.
    """

    gpu: str | None = None
    profile: str | None = None
    seed: int = 1
    sim_set: Mapping[str, str] = field(default_factory=dict)
    plant: Plant | None = None
    rings: bool = True
    paced: bool = False
    watchdog_ns: int = 250 * MS
    max_memory: int = GIB


@contextmanager
def on_behalf_of(probe: Probe) -> Iterator[None]:
    """Whatever is unsupported within is so for ``probe``."""
    try:
        yield
    except Unsupported as error:
        raise Unsupported(error.reason, error.probe or probe.name) from error


@dataclass(frozen=True)
class Trouble:
    """A probe that stopped: which op of it returned which code, and what that code means.

    ``op`` is the op's function with its label, ``fatal`` says that the error spoils the context of all probes.
    """

    probe: str
    op: str
    code: int
    text: str
    fatal: bool = False

    @property
    def sentence(self) -> str:
        """The trouble in words."""
        return f"{self.probe}: {self.op} returned {self.code} ({self.text})"


class Backend(Protocol):
    """One way to execute programs. A backend module has ``create() -> Backend``.

    The engine calls all of it from its main thread, in this order: ``prepare``, ``start``, then ``poll`` and
    ``advance`` again and again, then ``stop``.
    """

    @property
    def virtual(self) -> bool:
        """Whether its time is virtual, so that it only passes in ``advance``."""
        ...

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Make everything the probes need and tell about it (devices, context names, fingerprint bits).

        Raises Unsupported or BackendError.
        """
        ...

    def start(self) -> None:
        """Start the probes' threads, each parked until its RUN word is 1. Returns when all setup ops are done."""
        ...

    def poll(self) -> list[Trouble]:
        """Copy proof words to the board and report probes that stopped since the last call. Must not block."""
        ...

    def advance(self, ns: int) -> None:
        """Let ``ns`` of virtual time pass. Raises BackendError where time is real."""
        ...

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and end the threads; True if all ended within ``deadline_s``."""
        ...


def real_time_only() -> BackendError:
    """What ``advance`` raises where time is real."""
    return BackendError(EXIT_ENGINE, "virtual time was asked of a backend whose time is real")
