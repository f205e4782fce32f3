"""A graph that another thread instantiates or changes."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.GRAPH,
    "graph instantiation",
    "instantiating a graph",
    of_entry("graph-instantiate"),
    evidence=named_calls,
    columns=lambda call: ("graph-instantiate",),
)
