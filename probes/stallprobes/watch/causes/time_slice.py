"""Who had the graphics engine meanwhile, in words."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.units import duration_ns
from stallprobes.watch.attribution.evidence_text import MOST_NAMED
from stallprobes.watch.attribution.findings import ExplainedCall


def named_users(call: ExplainedCall) -> Iterator[str]:
    """The contexts of the evidence, in words."""
    for use in call.evidence.engine[:MOST_NAMED]:
        who = use.process or ("another process" if use.context is None else f"context {use.context}")
        yield f"{who} had the graphics engine for {duration_ns(use.ns)}"
