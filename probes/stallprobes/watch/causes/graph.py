"""A graph that another thread instantiates or changes."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    name = plain_name(function)
    return family is CallFamily.GRAPH and "Capture" not in name and "Recapture" not in name


CAUSE = Cause(
    WaitCause.GRAPH,
    "graph instantiation",
    "instantiating a graph",
    of_entry("graph-instantiate"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("graph-instantiate",),
)
