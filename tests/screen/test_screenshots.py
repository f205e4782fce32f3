"""The screenshots in the tree show what the screen shows now: they are drawn anew and compared."""

from __future__ import annotations

import asyncio
import importlib.util
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from factories.timeline_traces import recorded, report_1
from factories.virtual_demo import VirtualDemo
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.traces.trace import TraceTrigger
from stallscope.tui.demo.tour import DemoTour

HERE = Path(__file__).parents[2] / "screenshots"
SVG = "{http://www.w3.org/2000/svg}"
SIDES = ("width", "height")
LARGEST = 300_000
VERDICTS = {
    "secondary-context-d2d": "STALLED a d2d@secondary wait 5.60 µs → 1.73 ms ×309",
    "peer-copy-behind-kernel": "STALLED a peer-copy wait 44.8 µs → 93.8 ms ×2095",
    "pageable-d2h-vs-launch": "STALLED a launch/null call p99 5.98 µs → 200 ms ×33408",
    "scalar-readback": "GPU time 1 scalar-readback D2H 4 bytes takes 5.01 ms",
    "default-stream-gate": "launch-then-open",
    "explain": "d2d@secondary: wait p50 5.60 µs → 1.73 ms (×309)",
    "picker": "kernel-other-context (stall)",
    "matrix": "3 STARVED, 171 STALLED, 8 slower, 1 drift of 350 cells",
    "watch": "86 % of the time of launches (thread 742) is waiting: 100 % pageable copy in MainThread (thread 723).",
    "watch-training": "MainThread (with 1 more thread) is host-bound: the GPU waits for the host. It is copy-bound too",
    "matrix-cell": "D2D · secondary · own stream: wait p50 5.60 µs → 2.34 ms (×418)",
}


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """screenshots/make.py."""
    spec = importlib.util.spec_from_file_location("make_screenshots", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(
    without_terminal_updates: None, maker: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """All screenshots, made now."""
    return {file.stem: file for file in maker.make(tmp_path_factory.mktemp("screenshots"))}


def texts(parent: ET.Element) -> Iterator[tuple[float, float, str]]:
    for one in parent.findall(f"{SVG}text"):
        yield float(one.get("y", "")), float(one.get("x", "")), one.text or ""


def words(file: Path, number: int | None = None) -> str:
    """What can be read from top to bottom, of an animation on screen ``number``."""
    root = ET.parse(file).getroot()
    canvas = root.find(f"{SVG}g")
    assert canvas is not None
    found = list(texts(canvas))
    for group in canvas.findall(f"{SVG}g"):
        first, _, end = group.get("class", "").removeprefix("f f").partition("-")
        if number is None or int(first) <= number < int(end):
            found += texts(group)
    return " ".join(text for _, _, text in sorted(found))


def test_those_in_the_tree_are_up_to_date(drawn: dict[str, Path]) -> None:
    assert {file.stem for file in HERE.glob("*.svg")} == set(drawn)
    for name, file in drawn.items():
        # Colours are Textual's, and may change with it.
        assert words(HERE / file.name) == words(file), f"{name} is old: python screenshots/make.py --png"


@pytest.mark.parametrize("name", VERDICTS)
def test_each_says_its_verdict(drawn: dict[str, Path], name: str) -> None:
    assert VERDICTS[name] in words(drawn[name])
    # The recording of a program has no name of a GPU.
    if name not in ("picker", "watch", "watch-training"):
        # A check says nothing of a GPU's number, which may be another's by now.
        two = name == "peer-copy-behind-kernel"
        number = "" if name.startswith("matrix") else " (GPU 0, GPU 1)" if two else " (GPU 0)"
        assert f"NVIDIA H200{number} · driver 580.159.04 · CUDA 13.0" in words(drawn[name])


def moments(maker: ModuleType) -> tuple[int, int]:
    """The screens of the moving picture at the end of the remedy, and at the beginning of the stall's own part."""
    remedied = 1 + round((maker.BEFORE_REMEDY_S + maker.AFTER_REMEDY_S) / maker.STEP_S)
    return remedied, remedied + 1


def test_a_stall_appears_and_its_remedy_ends_it(drawn: dict[str, Path], maker: ModuleType) -> None:
    file = drawn["stall-appears"]
    remedied, quiet = moments(maker)
    assert "NVIDIA H200 (GPU 0) · driver 580.159.04 · CUDA 13.0" in words(file, 0)
    assert "STALLED a d2d@secondary wait 5.66 µs → 1.88 ms ×331" in words(file, 0)
    assert "Kernel and copy both in the primary context." in words(file, remedied)
    assert "as without it" in words(file, remedied)
    assert "STALLED" not in words(file, quiet)
    assert "Watch the line: it is about to move." in words(file, quiet)


def test_without_animation_the_stall_is_seen(drawn: dict[str, Path]) -> None:
    groups = ET.parse(drawn["stall-appears"]).getroot().iter(f"{SVG}g")
    moving = [group for group in groups if group.get("class", "").startswith("f ")]
    first = [group for group in moving if str(group.get("class")).startswith("f f0-")]
    assert first
    assert len(moving) > len(first)
    assert [group for group in moving if group.get("visibility") != "hidden"] == first


def test_rules_stay_as_thick_as_a_pixel_in_a_smaller_picture(drawn: dict[str, Path]) -> None:
    for name in ("secondary-context-d2d", "stall-appears"):
        root = ET.parse(drawn[name]).getroot()
        style = root.find(f"{SVG}style")
        assert style is not None
        assert "path{fill:none;stroke-width:1px;vector-effect:non-scaling-stroke}" in str(style.text)
        assert list(root.iter(f"{SVG}path"))
        assert not [rect for rect in root.iter(f"{SVG}rect") if min(float(rect.get(s, 0)) for s in SIDES) <= 1]


def test_the_moving_picture_of_a_recorded_demo_shows_the_stall_and_the_remedy(
    without_terminal_updates: None, maker: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "demo.rec"
    demo = VirtualDemo(DemoTour([patterns()["secondary-context-d2d"]], 5.0), record=file)
    demo.run()
    demo.close()
    ((name, svg),) = asyncio.run(maker.draw_demo(file)).items()
    assert name == "stall-appears"
    (tmp_path / "demo.svg").write_text(svg, encoding="utf-8")
    remedied, quiet = moments(maker)
    assert "Watch the line: it is about to move." in words(tmp_path / "demo.svg", quiet)
    assert "Kernel in the primary context, copy in the secondary." in words(tmp_path / "demo.svg", 0)
    assert "STALLED" in words(tmp_path / "demo.svg", 0)
    assert "Kernel and copy both in the primary context." in words(tmp_path / "demo.svg", remedied)
    assert len(svg) < LARGEST


def test_they_are_the_same_bytes_each_time(drawn: dict[str, Path], maker: ModuleType) -> None:
    for name, svg in asyncio.run(maker.draw(sorted(maker.RECORDINGS.glob("*.rec"))[0], True)).items():
        assert drawn[name].read_text(encoding="utf-8") == svg


def test_of_a_recording_with_traces_the_longest_stall_is_drawn(
    without_terminal_updates: None, maker: ModuleType, tmp_path: Path
) -> None:
    whole = report_1()
    assert whole.trigger is not None
    host = [probe.role for probe in whole.probes].index(Role.HOST)
    number = int(np.flatnonzero(whole.calls["probe"] == host)[0])
    shorter = whole.changed(trigger=TraceTrigger(host, *whole.calls[number][["began_ns", "returned_ns"]].tolist()))
    file = recorded(tmp_path / "traces.rec", shorter, whole, shorter)
    ((name, svg),) = asyncio.run(maker.draw(file, False)).items()
    assert name == "secondary-context-d2d-trace"
    (tmp_path / "trace.svg").write_text(svg, encoding="utf-8")
    said = words(tmp_path / "trace.svg")
    assert "TRACE 2/3" in said
    assert "returned → GPU start 2." in said
    assert "context primary had the engine" in said


def test_they_are_small_and_need_no_network(drawn: dict[str, Path]) -> None:
    for file in drawn.values():
        text = file.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
        assert "://" not in text
        assert "url(" not in text.replace("url(#", "")
        assert "@import" not in text
        assert file.stat().st_size < LARGEST
    for name in VERDICTS:
        assert (HERE / f"{name}.png").stat().st_size < LARGEST


def test_the_readmes_show_them_all() -> None:
    pictures = (HERE / "README.md").read_text(encoding="utf-8")
    for name in VERDICTS:
        assert f"({name}.png)" in pictures
    assert "(screenshots/stall-appears.svg)" in (HERE.parent / "README.md").read_text(encoding="utf-8")
