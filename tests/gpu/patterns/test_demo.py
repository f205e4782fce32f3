"""On a real GPU: the demo in a terminal from start to end without a key, with the stalls of the reports.

tests/unit/tui/test_demo_tour.py has all patterns.
"""

from __future__ import annotations

import re

import pytest

from factories.terminal import OpenTerminal
from stallprobes.machine import gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SCREEN_BACK = b"\x1b[?1049l"
REPORTED = ("secondary-context-d2d", "pageable-d2h-vs-launch", "scalar-readback", "default-stream-gate")


def latency_ns(row: str) -> float:
    """The first latency in a row of the table."""
    found = re.search(r"([\d.]+) (ns|µs|ms|s)\b", row)
    assert found is not None, row
    return float(found[1]) * {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}[found[2]]


def test_it_shows_each_stall_and_its_remedy(terminal: OpenTerminal) -> None:
    (gpu,) = gpus.choose(None, gpus.survey())
    chosen = [word for name in REPORTED for word in ("--pattern", name)]
    screen = terminal("demo", *chosen, "--gpu", gpu.uuid, "--allow-shared", "--seconds", "2", size=(160, 48))
    # Longer than a test waits for a condition.
    while screen.alive:
        screen.read(0.1)
    assert screen.wait_for_end() == 0, screen.text()[-3000:]
    printed = screen.text(since=screen.raw.rindex(SCREEN_BACK))
    assert "SIMULATED" not in printed
    assert "failed: " not in printed
    for name in REPORTED:
        rows = printed[printed.index(f"{name}  ") :].splitlines()[:3]
        _, stalled_ns, remedied_ns = (latency_ns(row) for row in rows)
        assert [row.removeprefix(name).split()[0] for row in rows[1:]] == ["stall", "remedy"]
        assert stalled_ns > 10 * remedied_ns, name
