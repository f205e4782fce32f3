"""What the catalogue holds: a probe that is not yet placed, and what it does to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stallprobes.model import MS, PRIMARY, Context, Op, Phase, Probe, Program, Role, Stream, StreamKind, null_stream


@dataclass(frozen=True)
class Place:
    """Where a probe runs: a context and a stream of it (by default one of its own)."""

    context: Context = PRIMARY
    stream: Stream | None = None

    def own(self, name: str = "own") -> Stream:
        """The stream to use: the given one, else a non-blocking one that belongs to the probe alone."""
        return self.stream if self.stream is not None else Stream(name, self.context)

    @property
    def context_words(self) -> str:
        """The context in words, with the GPU where that is not the first."""
        return self.context.name if self.context.device == 0 else f"{self.context.name} of GPU 2"

    @property
    def stream_words(self) -> str:
        """The stream in words: ``own``, ``NULL``, or ``shared``."""
        if self.stream is None:
            return "own"
        if self.stream.kind is StreamKind.NULL:
            return "NULL"
        return "shared" if self.stream.shared else self.stream.name


def on_null_stream(context: Context = PRIMARY) -> Place:
    """The legacy default stream of ``context``."""
    return Place(context, null_stream(context))


def on_shared_stream(context: Context = PRIMARY, name: str = "X") -> Place:
    """A non-blocking stream that several probes use together."""
    return Place(context, Stream(name, context, shared=True))


@dataclass(frozen=True)
class Cause:
    """Why an aggressor stalls a victim, when their relation is the one named here.

    ``context`` and ``stream``: "same", "other" or None for either. ``victims`` are entry names, empty for any.
    """

    why: str
    helps: str
    context: str | None = None
    stream: str | None = None
    victims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One probe of the catalogue.

    ``program`` makes its program from a place and a size in bytes (0 where size means nothing). ``period_ns`` is
    its usual pace, 0 for back to back.
    """

    name: str
    title: str
    role: Role
    program: Callable[[Place, int], Program]
    what: str
    source: str
    period_ns: int = 0
    size: int = 0
    causes: tuple[Cause, ...] = field(default=())

    def probe(
        self,
        place: Place | None = None,
        *,
        size: int | None = None,
        name: str | None = None,
        period_ns: int | None = None,
    ) -> Probe:
        """A probe of this entry at ``place``, copying ``size`` bytes, one turn each ``period_ns``.

        Raises ValueError when a size is given to an entry that has none.
        """
        if size is not None and not self.size:
            raise ValueError(f"{self.name} has no size to set")
        place = place if place is not None else Place()
        program = self.program(place, size if size is not None else self.size)
        context = place.context_words if program.context is not None else "none"
        stream = place.stream_words if program.context is not None else "none"
        where = "" if program.context is None else f" · {context} · {stream} stream"
        return Probe(
            name=name or self.name,
            title=self.title + where,
            role=self.role,
            program=program,
            period_ns=self.period_ns if period_ns is None else period_ns,
            entry=self.name,
            context=context,
            stream=stream,
        )


VICTIM_PERIOD_NS = 1 * MS


def then_wait(stream: Stream, *ops: Op) -> tuple[Op, ...]:
    """``ops``, then the host waits until ``stream`` has done them: that wait is the phase ``wait``."""
    return (*ops, Op("cuStreamSynchronize", (stream,), Phase.WAIT))
