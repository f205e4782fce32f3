"""The simulated GPU's timeline against a run of peer copies recorded on two H200, with records of the driver's calls.

Made by ``stallscope run peer-copy-behind-kernel --timeline --json`` with CUPTI 13.5 and driver 580.159.04.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.model import Channel, Phase, Role
from stallprobes.patterns import patterns

FILE = Path(__file__).parents[1] / "gpu" / "recorded" / "h200x2-peer-timeline.json.gz"
PATTERN = "peer-copy-behind-kernel"
VARIANTS = ("staged", "direct", "idle-stream", "host-relay-naive", "host-relay")
# By what factor the time of a copy on the GPU may differ.
NEAR = 1.5
pytestmark = pytest.mark.usefixtures("forked_engines")


@cache
def recorded(variant: str) -> dict[str, dict[str, Any]]:
    """The victims of the recorded run of a variant by name."""
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        results = json.load(file)["variants"]
    [result] = [one for one in results if one["variant"] == variant]
    return {one["name"]: one for one in result["probes"] if one["role"] == "victim"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_time_on_the_gpu_is_near_the_recorded_one(variant: str) -> None:
    """For each call, as on the two H200: the start and the time on the GPU of every copy were recorded there."""
    found = patterns()[PATTERN].variant(variant)
    victims = [probe.name for probe in found.probes if probe.role is Role.VICTIM]
    assert set(victims) == set(recorded(variant))
    with Session(list(found.probes), "sim", options=Options(timeline=True, profile="h200")) as session:
        session.set_running({probe.name: probe.name in victims for probe in found.probes})
        session.run_for(0.5)
        snapshot = session.snapshot()
    for name in victims:
        known = recorded(variant)[name]["baseline"]["gpu"]["p50_ns"] / 1000
        channels = snapshot.probes[name].channels
        counts = [channels[Channel(phase)].count for phase in (Phase.CALL, Phase.START, Phase.EARLY, Phase.GPU)]
        assert counts[0] == counts[1] + counts[2] == counts[3] > 50
        simulated = channels[Channel(Phase.GPU)].percentile(50)
        assert simulated is not None
        assert known / NEAR < simulated / 1000 < known * NEAR
