"""Make the recording that the tests of pictures stand on: PYTHONPATH=app:probes:tests python tests/screen/remake.py"""

from __future__ import annotations

from pathlib import Path

from screen.conftest import WALL_S, bench_of

from stallprobes.engine.backend import Options
from stallprobes.live.capture import capture

if __name__ == "__main__":
    path = Path(__file__).parent / "data" / "stall.rec"
    path.unlink(missing_ok=True)
    probe_set = bench_of("secondary-context-d2d", "kernel-other-context")
    capture(probe_set, path, options=Options(profile="h200"), seconds=3.0, wall_s=WALL_S)
