"""A verdict with made-up words."""

from __future__ import annotations

from stallprobes.model import Phase
from stallprobes.verdicts.rules import Verdict


def verdict(kind: str = "stalled", **changed: object) -> Verdict:
    """A verdict of ``kind`` on the victim "launch": ten times its baseline, in call p50, unless ``changed``."""
    values: dict[str, object] = {
        "probe": "launch",
        "phase": Phase.CALL,
        "quantile": "p50",
        "quiet_us": 2.7,
        "now_us": 27.0,
        "ratio": 10.0,
        "kind": kind,
        "cause": f"The cause of {kind}.",
        "sentence": f"launch: {kind}. The cause of {kind}.",
        "helps": f"A remedy for {kind}.",
    }
    return Verdict(**{**values, **changed})  # type: ignore[arg-type]
