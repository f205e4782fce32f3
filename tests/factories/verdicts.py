"""A verdict with made-up words."""

from __future__ import annotations

from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict


def verdict(
    kind: str = "stalled", *, baseline_us: float = 2.7, now_us: float = 27.0, quantile: str = "p50", **changed: object
) -> Verdict:
    """A verdict of ``kind`` on the victim "launch": ten times its baseline, in call p50, unless ``changed``."""
    values: dict[str, object] = {
        "probe": "launch",
        "phase": Phase.CALL,
        "quantile": Quantile(quantile),
        "baseline_ns": baseline_us * 1000,
        "now_ns": now_us * 1000,
        "ratio": 10.0,
        "kind": VerdictKind(kind),
        "head": f"launch: {kind}.",
        "cause": f"The cause of {kind}.",
        "remedy": f"A remedy for {kind}.",
    }
    return Verdict(**{**values, **changed})  # type: ignore[arg-type]
