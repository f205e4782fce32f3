"""Recordings of the simulated GPU; run as a program it writes the one in tests/screen/data anew."""

from __future__ import annotations

from pathlib import Path

from stallprobes.engine.backend import Options
from stallprobes.live.capture import capture
from stallprobes.live.observation import SIM, ProbeSet
from stallprobes.patterns import patterns

# What the clock on the wall shows when a recording begins.
WALL_S = 1_800_000_000.0
STALL = Path(__file__).parents[1] / "screen" / "data" / "stall.rec"


def probe_set_of(pattern: str, variant: str) -> ProbeSet:
    """The probe set of a pattern's variant on the simulated GPU."""
    what = patterns()[pattern].variant(variant)
    return ProbeSet(f"{pattern} · {variant}", what.probes, SIM, pattern=pattern, variant=variant, expect=what.expect)


def record_stall(path: Path) -> None:
    """Record a copy in a second context: its baseline, then 3 s stalled by a kernel in the first context."""
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    capture(probe_set, path, options=Options(profile="h200"), seconds=3.0, wall_s=WALL_S)


if __name__ == "__main__":
    STALL.unlink(missing_ok=True)
    record_stall(STALL)
