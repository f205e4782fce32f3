"""What the Python programs of remedies share: rounds, and the result as one line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping

ROUNDS = 20


def median_us(one_round: Callable[[], int], rounds: int = ROUNDS) -> float:
    """Median of what the rounds return in ns, in us, without the first one."""
    return statistics.median([one_round() for _ in range(rounds + 1)][1:]) / 1000


def require(condition: object, what: str) -> None:
    """End the program where a copy did not copy: a remedy that does nothing would be fast."""
    if not condition:
        sys.stderr.write(f"not so: {what}\n")
        sys.stderr.flush()
        # sys.exit would end the calling thread only.
        os._exit(1)


def report(victim: str, before_us: float, after_us: Mapping[str, float], without_us: float = 0.0) -> None:
    """Print the latency of ``victim`` with the stall, and with each remedy by the name of its variant.

    ``without_us`` is that without the cause, where the stall is not hundreds of times longer.
    """
    after = {variant: round(took_us, 2) for variant, took_us in after_us.items()}
    found = {"victim": victim, "before_us": round(before_us, 2), "after_us": after, "without_us": round(without_us, 2)}
    sys.stdout.write(json.dumps(found) + "\n")
