"""Step: an op of a program, bound to a thread of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.device import HostWord
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.model import Channel, Op


@dataclass(frozen=True)
class Step:
    """An op bound to a thread: ``call`` makes the call; ``channel`` and ``label`` are the rows of its histograms or -1.

    ``latency`` gives the distribution of the call's latency while the call has no other effect, else None.
    """

    call: Callable[[], Call]
    channel: int
    label: int
    into: HostWord | None
    value: HostWord | None
    ok: tuple[int, ...]
    repeat: int
    latency: Callable[[], LatencyDistribution | None] | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its histograms."""
        return tuple(row for row in (self.channel, self.label) if self.channel >= 0 and row >= 0)


def step(
    op: Op,
    call: Callable[[], Call],
    words: Callable[[Any], HostWord],
    channels: Sequence[Channel],
    latency: Callable[[], LatencyDistribution | None] | None = None,
) -> Step:
    """The step for ``op``; without ``channels`` it is not measured. ``words`` gives the HostWord of a word."""
    measured = op.phase is not None and bool(channels)
    return Step(
        call=call,
        channel=channels.index(Channel(op.phase)) if measured and op.phase is not None else -1,
        label=channels.index(Channel(op.phase, op.label)) if measured and op.label and op.phase is not None else -1,
        into=None if op.into is None else words(op.into),
        value=None if op.value is None else words(op.value),
        ok=(0, *op.ok),
        repeat=op.repeat,
        latency=latency,
    )
