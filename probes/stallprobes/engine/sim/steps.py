"""An op that is ready to be called."""

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
    """An op, ready to be called: ``call`` makes the call, ``channel`` and ``label`` are its histograms or -1.

    ``latency`` tells the Cost of the call while that is all there is to it.
    """

    call: Callable[[], Call]
    channel: int
    label: int
    into: HostWord | None
    value: HostWord | None
    ok: tuple[int, ...]
    repeat: int
    latency: Callable[[], LatencyDistribution | None] | None = None


def step(
    op: Op,
    call: Callable[[], Call],
    cells: Callable[[Any], HostWord],
    channels: Sequence[Channel],
    latency: Callable[[], LatencyDistribution | None] | None = None,
) -> Step:
    """The step for ``op``; with no ``channels`` it is not measured."""
    measured = op.phase is not None and bool(channels)
    return Step(
        call=call,
        channel=channels.index(Channel(op.phase)) if measured and op.phase is not None else -1,
        label=channels.index(Channel(op.phase, op.label)) if measured and op.label and op.phase is not None else -1,
        into=None if op.into is None else cells(op.into),
        value=None if op.value is None else cells(op.value),
        ok=(0, *op.ok),
        repeat=op.repeat,
        latency=latency,
    )
