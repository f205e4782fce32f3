"""On a real GPU: the demo in a terminal from start to end without a key, with the stalls of the reports.

tests/unit/tui/test_demo_tour.py has all patterns.
"""

from __future__ import annotations

import json

import pytest

from factories.documents import validate
from factories.terminal import OpenTerminal
from stallprobes.machine import gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SCREEN_BACK = b"\x1b[?1049l"
REPORTED = ("secondary-context-d2d", "pageable-d2h-vs-launch", "scalar-readback", "default-stream-gate")


def test_it_shows_each_stall_and_its_remedy(terminal: OpenTerminal) -> None:
    (gpu,) = gpus.choose(None, gpus.survey())
    chosen = [word for name in REPORTED for word in ("--pattern", name)]
    screen = terminal(
        "demo", *chosen, "--gpu", gpu.uuid, "--allow-shared", "--seconds", "2", "--json", size=(160, 48)
    )  # fmt: skip
    # Longer than a test waits for a condition.
    while screen.alive:
        screen.read(0.1)
    assert screen.wait_for_end() == 0, screen.text()[-3000:]
    printed = screen.text(since=screen.raw.rindex(SCREEN_BACK))
    document = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    validate(document, "stallscope.demo/1")
    assert document["backend"] == "cuda"
    found = {one["pattern"]: one for one in document["patterns"]}
    assert list(found) == list(REPORTED)
    assert [name for name, one in found.items() if one["problem"]] == []
    for name in REPORTED:
        one = found[name]
        assert one["stalled"]["kind"] in ("stalled", "starved", "gpu-time"), name
        assert one["stalled"]["now_us"] > 10 * one["remedied"]["now_us"], name
