"""Windows of the live screen: each begins with the latest snapshot that makes it long enough."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from factories.simulated_machine import MS, machine
from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.live.windows import LONGEST_WINDOW_NS, WINDOW_NS, LazyWindows, long_enough
from stallscope.tui.probe_sets import default_probes

VICTIMS = ("launch", "d2d@secondary", "d2h-pinned", "host")
STEP_NS, STEPS = 100 * MS, 60


@pytest.fixture(scope="module")
def snapshots() -> list[Snapshot]:
    """6 s of the default probes: one victim has an eighth of the time, another is switched on after two seconds."""
    made = machine(*default_probes())
    made.switch(True, VICTIMS[:-1])
    out = []
    for number in range(STEPS):
        if number == 20:
            made.switch(True, VICTIMS)
        made.advance(STEP_NS)
        snapshot = made.board.snapshot()
        part = snapshot.probes["d2d@secondary"]
        rare = structs.replace(part, in_slots=True, allowed_ns=part.at_ns // 8)
        out.append(replace(snapshot, probes={**snapshot.probes, part.name: rare}))
    return out


def latest_long_enough(part: ProbeSnapshot, recent: list[Snapshot]) -> ProbeSnapshot:
    starts = [one.probes[part.name] for one in recent]
    return next((start for start in reversed(starts) if long_enough(part, start)), starts[0])


def test_a_window_begins_with_the_latest_snapshot_that_makes_it_long_enough(snapshots: list[Snapshot]) -> None:
    lengths = set()
    for end in range(2, STEPS):
        recent = snapshots[: end + 1]
        windows = LazyWindows(recent)
        assert list(windows) == list(recent[-1].probes)
        for name, part in recent[-1].probes.items():
            start = latest_long_enough(part, recent)
            window, alone = windows[name], part.minus(start)
            assert (window.iterations, window.duration_ns, window.period_ns) == (
                part.iterations - start.iterations,
                part.allowed_ns - start.allowed_ns,
                part.period_ns,
            )
            assert window.channels == alone.channels
            assert (window.samples == alone.samples).all()
            assert windows.channels_until(part) == alone.channels
        lengths.add(windows.longest_ns)
    # Shorter at the beginning, and longer for the victim with an eighth of the time.
    assert min(lengths) < WINDOW_NS < max(lengths) <= LONGEST_WINDOW_NS


def test_windows_of_another_order_of_time_name_the_probes(snapshots: list[Snapshot]) -> None:
    assert snapshots[-1].minus(snapshots[0])["launch"].channels == (
        snapshots[-1].probes["launch"].minus(snapshots[0].probes["launch"]).channels
    )
    with pytest.raises(ValueError, match=r"not of the probe launch or .*more values"):
        snapshots[0].minus(snapshots[-1])
    with pytest.raises(ValueError, match=r"not of the probe host: .*more values"):
        snapshots[0].probes["host"].minus(snapshots[-1].probes["host"])
