"""Draw the screenshots from the recordings of real GPUs: python screenshots/make.py [--out DIR] [--png]

Replays each file of ``screenshots/recordings`` on the screen, without a terminal, and writes

    PATTERN.svg          the monitor just before the stall ends, on the victim that stalls
    PATTERN-trace.svg    of a recording with the timeline, instead: the trace of its longest stall
    timeline.svg         what follows in the first of these traces
    explain.svg          the explanation, over the first recording
    picker.svg           the patterns to pick from, over the first recording
    matrix.svg           a recorded check of two H200s, the worst first
    matrix-cell.svg      one of its cells: what it is, why, and its histograms
    stall-appears.svg    the recorded demo, animated by CSS: the stall, the remedy, quiet, with captions
    watch.svg            a watched program, of ``recordings/watch``: two threads of it, and what their calls wait for
    watch-training.svg   another one: what bounds a training of ResNet-18, its lines and its kernels

On a machine with an H200 this records the demo:

    stallscope demo --pattern secondary-context-d2d --seconds 6 --record screenshots/recordings/demo/demo.rec

All are drawn with the default settings; the monitor has its time axis of 20 s (the key +), as the demo does.

The SVG files need nothing but the package, load nothing from the network, and are the same bytes each time.
``--png`` draws a PNG beside each of them; that needs ``pip install cairosvg pillow``, the cairo library (Debian:
libcairo2) and the font DejaVu Sans Mono (Debian: fonts-dejavu-core).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probes")]

from rich.style import Style  # noqa: E402
from textual._context import visible_screen_stack  # noqa: E402
from textual.widgets import OptionList  # noqa: E402

from stallprobes.live.analyzer import Analyzer  # noqa: E402
from stallprobes.matrix import check_file  # noqa: E402
from stallprobes.model import Role  # noqa: E402
from stallprobes.recording.observation import ProbeSet  # noqa: E402
from stallprobes.recording.recording import Recording  # noqa: E402
from stallprobes.traces.trace import Trace  # noqa: E402
from stallprobes.watch.live.recording import WatchRecording  # noqa: E402
from stallscope.tui.app import StallscopeApp  # noqa: E402
from stallscope.tui.matrix.controller import MatrixController, MatrixState  # noqa: E402
from stallscope.tui.matrix.screen import MatrixScreen  # noqa: E402
from stallscope.tui.matrix.view_model import MatrixView  # noqa: E402
from stallscope.tui.monitor.screen import Monitor  # noqa: E402
from stallscope.tui.monitor.verdict_log import worst_first  # noqa: E402
from stallscope.tui.patterns.screen import PatternsScreen  # noqa: E402
from stallscope.tui.probe_sets import gpu_label  # noqa: E402
from stallscope.tui.settings import Settings  # noqa: E402
from stallscope.tui.sources.replay import ReplaySource  # noqa: E402
from stallscope.tui.sources.watch_replay import WatchReplaySource  # noqa: E402
from stallscope.tui.timeline.screen import TimelineScreen  # noqa: E402
from stallscope.tui.timeline.traces import RecordedTraces  # noqa: E402
from stallscope.tui.watch.call_table import WatchTable  # noqa: E402
from stallscope.tui.watch.screen import WatchScreen  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.strip import Strip

RECORDINGS = ROOT / "screenshots" / "recordings"
CHECK = ROOT / "tests" / "gpu" / "recorded" / "check-h200x2-1.json.gz"
CELL = ("d2d@secondary", "spin")
SIZE = (140, 44)
MOVING = "stall-appears"
# In a folder of its own, since no still picture is made of it.
DEMO = Path("demo") / "demo.rec"
SETTINGS = Settings()


class Watched(NamedTuple):
    """A recording of a watched program, the moment (s) of it that is drawn after ``keys``, and its command."""

    name: str
    file: Path
    at_s: float
    command: str
    keys: tuple[str, ...]


WATCHED = (
    Watched("watch", RECORDINGS / "watch" / "pageable-copies.rec", 4.0, "python pageable_copies.py", ("down",)),
    Watched("watch-training", RECORDINGS / "watch" / "training.rec", 3600.0, "python3 image_training.py", ("K",)),
)
TIMELINE_STEPS = 5
BEFORE_OFF_S = 0.3
BEFORE_ON_S, AFTER_ON_S, STEP_S, HOLD_S = 1.2, 4.2, 0.3, 3.0
# Of the remedy: before and after its aggressors are on.
BEFORE_REMEDY_S, AFTER_REMEDY_S = 0.6, 2.4

CELL_W, CELL_H, MARGIN = 10, 20, 10
FONT_SIZE = 16.6  # DejaVu Sans Mono is 0.602 em wide
BASELINE = 15
# Dots that cover a quarter of a cell are as light as this much of even colour, since sRGB is not linear.
_SHADES = {"░": 0.45, "▒": 0.7, "▓": 0.87}
_LOWER = "▁▂▃▄▅▆▇█"
# Parts of a cell from its left and from its right edge.
_LEFT = {"▎": 2, "▍": 3, "▌": 4, "▋": 5, "▊": 6, "▉": 7}
_RIGHT = {"▐": 4, "▕": 1}
# Where strokes begin and end, in half cells from the left and from the top, each to the right or down.
_STROKES = {
    "─": ((0, 1, 2, 1),),
    "│": ((1, 0, 1, 2),),
    "╭": ((1, 1, 2, 1), (1, 1, 1, 2)),
    "╮": ((0, 1, 1, 1), (1, 1, 1, 2)),
    "╰": ((1, 1, 2, 1), (1, 0, 1, 1)),
    "╯": ((0, 1, 1, 1), (1, 0, 1, 1)),
    "╵": ((1, 0, 1, 1),),
    "▏": ((0, 0, 0, 2),),
}
_DRAWN = f"[▁-█░▒▓{''.join((*_LEFT, *_RIGHT, *_STROKES))}]"
_GRAPHIC = re.compile(f"({_DRAWN})\\1*|(?:(?!{_DRAWN}).)+")
_WORDS = re.compile(r"\S+(?: \S+)*")


class Shape(NamedTuple):
    """A piece of a picture: what lies below is drawn first."""

    above: bool
    svg: str


class Palette:
    """Colours and kinds of text as short names of CSS classes, in the order of their first use."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, rules: str) -> str:
        """The class with these rules."""
        return self._names.setdefault(rules, f"s{len(self._names)}")

    @property
    def css(self) -> str:
        """All classes."""
        return "".join(f".{name}{{{rules}}}" for rules, name in self._names.items())


def shapes(strips: Sequence[Strip], ground: str, palette: Palette) -> list[Shape]:
    """The shapes of a screen: words as text, blocks and rules as rectangles, so that no font can tear them."""
    found: list[Shape] = []
    for row, strip in enumerate(strips):
        column = 0
        for segment in strip:
            style = segment.style or Style()
            ink, paper = _colours(style, ground)
            if paper != ground:
                found.append(Shape(False, _box(palette, paper, column, row, segment.cell_length)))
            # What is not as wide as long would shift the rest.
            assert segment.cell_length == len(segment.text), segment.text
            for piece in _GRAPHIC.finditer(segment.text):
                at, text = column + piece.start(), piece.group()
                if piece.group(1):
                    found.append(Shape(True, _graphic(palette, ink, at, row, text)))
                else:
                    found += [
                        Shape(True, _words(palette, style, ink, at + words.start(), row, words.group()))
                        for words in _WORDS.finditer(text)
                    ]
            column += segment.cell_length
    return found


def _colours(style: Style, ground: str) -> tuple[str, str]:
    ink = style.color.get_truecolor().hex if style.color is not None else "#e0e0e0"
    paper = style.bgcolor.get_truecolor().hex if style.bgcolor is not None else ground
    if style.reverse:
        ink, paper = paper, ink
    if style.dim:
        pairs = [(int(ink[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
        ink = "#" + "".join(f"{round(0.6 * a + 0.4 * b):02x}" for a, b in pairs)
    return ink.lower(), paper.lower()


def _box(palette: Palette, colour: str, column: int, row: int, cells: int) -> str:
    return _rect(palette, f"fill:{colour}", column * CELL_W, row * CELL_H, cells * CELL_W, CELL_H)


def _rect(palette: Palette, rules: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{palette.name(rules)}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def _graphic(palette: Palette, ink: str, column: int, row: int, text: str) -> str:
    x, y, width, kind = column * CELL_W, row * CELL_H, len(text) * CELL_W, text[0]
    fill = f"fill:{ink}"
    if kind in _SHADES:
        return _rect(palette, f"{fill};fill-opacity:{_SHADES[kind]}", x, y, width, CELL_H)
    if kind in _LOWER:
        height = CELL_H * (_LOWER.index(kind) + 1) / 8
        return _rect(palette, fill, x, y + CELL_H - height, width, height)
    if kind in _LEFT or kind in _RIGHT:
        part = CELL_W * (_LEFT.get(kind) or _RIGHT[kind]) / 8
        places = (x + number * CELL_W + (CELL_W - part if kind in _RIGHT else 0) for number in range(len(text)))
        return "".join(_rect(palette, fill, left, y, part, CELL_H) for left in places)
    strokes = []
    for number in range(len(text) if kind != "─" else 1):
        for x1, y1, x2, y2 in _STROKES[kind]:
            left, top = x + number * CELL_W + x1 * CELL_W / 2, y + y1 * CELL_H / 2
            if y1 == y2:
                strokes.append(f"M{left:g} {top + 0.5:g}h{width if kind == '─' else (x2 - x1) * CELL_W / 2:g}")
            else:
                strokes.append(f"M{left + 0.5:g} {top:g}v{(y2 - y1) * CELL_H / 2:g}")
    return f'<path class="{palette.name(f"stroke:{ink}")}" d="{"".join(strokes)}"/>'


def _words(palette: Palette, style: Style, ink: str, column: int, row: int, text: str) -> str:
    rules = f"fill:{ink}"
    if style.bold:
        rules += ";font-weight:bold"
    if style.italic:
        rules += ";font-style:italic"
    if style.underline:
        rules += ";text-decoration:underline"
    place = f'x="{column * CELL_W}" y="{row * CELL_H + BASELINE}" textLength="{len(text) * CELL_W}"'
    return f'<text class="{palette.name(rules)}" {place}>{escape(text, quote=False)}</text>'


def document(ground: str, palette: Palette, title: str, body: Iterable[str], css: str = "") -> str:
    """A whole SVG file."""
    width, height = SIZE[0] * CELL_W + 2 * MARGIN, SIZE[1] * CELL_H + 2 * MARGIN
    base = f"text{{font:{FONT_SIZE}px 'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace}}"
    base += "rect,path{shape-rendering:crispEdges}"
    # A rule that became thinner than a pixel in a smaller picture would vanish in places.
    base += "path{fill:none;stroke-width:1px;vector-effect:non-scaling-stroke}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title, quote=False)}</title>",
            f"<style>{base}{palette.css}{css}</style>",
            f'<rect width="{width}" height="{height}" rx="8" style="fill:{ground};shape-rendering:auto"/>',
            f'<g transform="translate({MARGIN} {MARGIN})">',
            *body,
            "</g>",
            "</svg>",
            "",
        )
    )


def still(strips: Sequence[Strip], ground: str, title: str) -> str:
    """A screen as SVG."""
    palette = Palette()
    drawn = sorted(shapes(strips, ground, palette), key=lambda shape: shape.above)
    return document(ground, palette, title, [shape.svg for shape in drawn])


def animated(screens: Sequence[tuple[Sequence[Strip], float]], ground: str, title: str) -> str:
    """Screens one after the other, each for its seconds, over and over; a shape that stays is there once.

    Where nothing moves, as with reduced motion or without animation, the first screen is seen.
    """
    palette = Palette()
    frames = [dict.fromkeys(shapes(strips, ground, palette)) for strips, _ in screens]
    *starts, whole = accumulate((seconds for _, seconds in screens), initial=0.0)
    spans: dict[tuple[int, int], list[Shape]] = defaultdict(list)
    for first, observation in enumerate(frames):
        for shape in observation:
            if first == 0 or shape not in frames[first - 1]:
                stays = (number for number in range(first, len(frames)) if shape not in frames[number])
                spans[first, next(stays, len(frames))].append(shape)
    css, body = [], []
    for above in (False, True):
        for (first, end), found in sorted(spans.items()):
            inside = [shape.svg for shape in found if shape.above is above]
            if inside and (first, end) == (0, len(frames)):
                body += inside
            elif inside:
                # A renderer without style sheets shows the first screen too.
                seen = "" if first == 0 else ' visibility="hidden"'
                body += [f'<g class="f f{first}-{end}"{seen}>', *inside, "</g>"]
    for first, end in sorted(spans):
        if (first, end) == (0, len(frames)):
            continue
        steps = [(0, first == 0), (first, True)] if first else [(0, True)]
        if end < len(frames):
            steps.append((end, False))
        keys = "".join(
            f"{100 * starts[number] / whole:.2f}%{{visibility:{'visible' if seen else 'hidden'}}}"
            for number, seen in steps
        )
        css.append(f".f{first}-{end}{{animation-name:k{first}-{end}}}@keyframes k{first}-{end}{{{keys}}}")
    css.append(
        f".f{{animation-duration:{whole:g}s;animation-timing-function:step-end;animation-iteration-count:infinite}}"
    )
    css.append("@media (prefers-reduced-motion:reduce){.f{animation:none}}")
    return document(ground, palette, title, body, "".join(css))


def disturbed_s(recording: Recording) -> tuple[float, float]:
    """Seconds from the beginning to the first and to the last frame in which an aggressor is on."""
    found = []
    for number, observation in enumerate(recording.play()):
        aggressors = [probe.name for probe in observation.probe_set.probes if probe.role is Role.AGGRESSOR]
        if observation.snapshot is not None and any(observation.snapshot.probes[name].on for name in aggressors):
            found.append(recording.at_s(number))
    # A control without aggressors is drawn at its end.
    return (found[0], found[-1]) if found else (recording.seconds, recording.seconds)


def telling_s(recording: Recording) -> float:
    """The last moment of the stall at which its verdict is the first in the log and the row says as much.

    Its verdict is the one with the largest ratio. While the machine itself makes noise is no good moment.
    """
    on_s, off_s = disturbed_s(recording)
    last_s = found_s = off_s - BEFORE_OFF_S
    analyzer: Analyzer | None = None
    for number, observation in enumerate(recording.play()):
        if analyzer is None:
            analyzer = Analyzer(
                observation.probe_set, baseline_s=SETTINGS.quiet_seconds, keep_s=2 * SETTINGS.history_seconds
            )
        analyzer.feed(observation)
        analyzer.follow_recorded(recording.baselines(number))
        monitor_view = analyzer.monitor_view(None, columns=10, span_s=10, strip=0)
        if not on_s < recording.at_s(number) <= last_s or not monitor_view.log:
            continue
        first = worst_first(monitor_view.log)[0].verdict
        largest = max(entry.verdict.ratio or 0.0 for entry in monitor_view.log)
        row = monitor_view.row(first.probe)
        calm = all(row.state == "quiet" for row in monitor_view.rows if row.role is Role.HOST)
        if calm and first.ratio == largest and row is not None and (row.ratio is None or row.ratio > largest / 2):
            found_s = recording.at_s(number)
    return found_s


def title_of(recording: Recording, probe_set: ProbeSet) -> str:
    """What was recorded, where, and when."""
    when = time.strftime("%Y-%m-%d", time.gmtime(recording.begun_s))
    return " · ".join((probe_set.title, gpu_label(probe_set), *probe_set.details, when))


def stall_ns(trace: Trace) -> int:
    """How long the call of the trigger took, or until the GPU started its work, if that was longer."""
    trigger, call = trace.trigger, trace.trigger_call()
    if trigger is None:
        return 0
    starts = trace.work_of(call)["start_ns"].tolist() if call is not None else []
    return int(max([trigger.returned_ns, *starts])) - trigger.began_ns


class Stage:
    """A recording on the screen, at a time of our choice."""

    def __init__(self, recording: Recording, screen: str = "monitor") -> None:
        self.now = 0.0
        self.recording = recording
        self.app = StallscopeApp(lambda: ReplaySource(recording, clock=lambda: self.now), SETTINGS, first=screen)
        self.app.animation_level = "none"
        self._monitor: Monitor | None = None
        self.settle: Callable[[], Awaitable[None]]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the screen, without a terminal."""
        async with self.app.run_test(size=SIZE) as pilot:

            async def settle() -> None:
                # Time for threads, then every message.
                await pilot.pause(0.01)
                await pilot.pause()

            self.settle = settle
            while not isinstance(self.app.screen, Monitor) or self.app.screen.monitor_view is None:
                await settle()
            self._monitor = self.app.screen
            self._monitor.rearrange()
            await settle()
            yield

    @property
    def monitor(self) -> Monitor:
        """The monitor."""
        assert self._monitor is not None
        return self._monitor

    async def go_to(self, seconds: float) -> None:
        """Play up to ``seconds``."""
        self.now = seconds
        self.monitor.tick()
        self.monitor.draw()
        await self.settle()
        # Another probe set can have changed the sizes of the panels.
        self.monitor.draw()

    def strips(self) -> list[Strip]:
        """What is on the screen."""
        visible_screen_stack.set(self.app._background_screens)
        return self.app.screen._compositor.render_strips(self.app.screen.size)

    @property
    def ground(self) -> str:
        """The colour behind it all."""
        return self.monitor.background_colors[1].hex6.lower()

    @property
    def title(self) -> str:
        """Where it was seen, and when."""
        assert self.monitor.state.probe_set is not None
        return title_of(self.recording, self.monitor.state.probe_set)


async def draw_check(recording: Path, file: Path) -> dict[str, str]:
    """The pictures of the recorded check ``file``; ``recording`` is what the monitor under it shows."""
    stage = Stage(Recording(recording))
    matrix = check_file.load(file)
    print_of = matrix.fingerprint
    facts = (f"driver {print_of['driver']}", f"CUDA {print_of['cuda']}", matrix.started_at[:10])
    title = " · ".join(("an interference matrix", str(print_of["gpu"]), *facts))
    made: dict[str, str] = {}
    async with stage.open():
        controller = MatrixController()
        controller.state = MatrixState(matrix_view=MatrixView.of(matrix), origin=file.name.removesuffix(".gz"))
        stage.monitor.context.controllers[MatrixController] = controller
        stage.monitor.action_open("matrix")
        while not isinstance(stage.app.screen, MatrixScreen) or not stage.app.screen.is_mounted:
            await stage.settle()
        screen = stage.app.screen
        screen.cursor = replace(screen.cursor, key=CELL)
        screen.draw()
        await stage.settle()
        await stage.settle()
        made["matrix"] = still(stage.strips(), stage.ground, title)
        screen.action_check_cell()
        await stage.settle()
        await stage.settle()
        made["matrix-cell"] = still(stage.strips(), stage.ground, f"{' beside '.join(CELL)} · {title}")
    return made


def switched_on_s(recording: Recording) -> list[float]:
    """Seconds from the beginning to each time at which aggressors were switched on in a probe set that had none on."""
    found: list[float] = []
    on_before = False
    for number, observation in enumerate(recording.play()):
        aggressors = [probe.name for probe in observation.probe_set.probes if probe.role is Role.AGGRESSOR]
        snapshot = observation.snapshot
        on = snapshot is not None and any(snapshot.probes[name].on for name in aggressors)
        if on and not on_before:
            found.append(recording.at_s(number))
        on_before = on
    return found


async def draw_demo(file: Path) -> dict[str, str]:
    """The moving picture of a recorded demo: its first stall, its remedy, and how the stall appears."""
    recording = Recording(file)
    stall_s, remedy_s, *_ = switched_on_s(recording)
    spans = ((stall_s, BEFORE_ON_S, AFTER_ON_S), (remedy_s, BEFORE_REMEDY_S, AFTER_REMEDY_S))
    stage = Stage(recording, "demo")
    parts = []
    async with stage.open():
        for on_s, before_s, after_s in spans:
            screens = []
            for number in range(round((before_s + after_s) / STEP_S) + 1):
                await stage.go_to(on_s - before_s + number * STEP_S)
                screens.append((stage.strips(), STEP_S))
            parts.append([*screens[:-1], (screens[-1][0], HOLD_S)])
        (*appearing, stalled), remedied = parts
        return {MOVING: animated([stalled, *remedied, *appearing], stage.ground, stage.title)}


async def draw(file: Path, first: bool) -> dict[str, str]:
    """The pictures of one recording by their names; of the first one more than of the others."""
    recording = Recording(file)
    stage = Stage(recording)
    if recording.traces():
        return await draw_traces(stage, first)
    made: dict[str, str] = {}
    async with stage.open():
        stage.monitor.action_change_span(-1)
        await stage.go_to(telling_s(recording))
        assert stage.monitor.state.probe_set is not None
        made[stage.monitor.state.probe_set.pattern] = still(stage.strips(), stage.ground, stage.title)
        if first:
            stage.monitor.action_explain()
            await stage.settle()
            await stage.settle()
            made["explain"] = still(stage.strips(), stage.ground, f"explain · {stage.title}")
            stage.app.pop_screen()
            await stage.app.push_screen(PatternsScreen(stage.monitor.context))
            for _ in range(2):
                stage.app.screen.query_one(OptionList).action_cursor_down()
            await stage.settle()
            await stage.settle()
            made["picker"] = still(stage.strips(), stage.ground, f"patterns · {stage.title}")
    return made


async def draw_traces(stage: Stage, first: bool) -> dict[str, str]:
    """The timeline of a recording at the trace of its longest stall; of the first recording also what follows."""
    recording, made = stage.recording, {}
    longest = max(recording.traces(), key=lambda each: stall_ns(recording.trace(each.number)))
    async with stage.open():
        await stage.go_to(longest.at_s)
        stage.monitor.action_open("timeline")
        while not isinstance(screen := stage.app.screen, TimelineScreen) or screen.cursor.trace is None:
            await stage.settle()
        assert stage.monitor.state.probe_set is not None
        # Of several traces near to each other, another one may have been opened.
        assert isinstance(screen.traces, RecordedTraces)
        screen.action_trace_recorded(longest.number - (screen.traces.number or 0))
        title = f"timeline · {stage.title}"
        made[f"{stage.monitor.state.probe_set.pattern}-trace"] = await drawn(stage, screen, title)
        if first:
            for _ in range(TIMELINE_STEPS):
                screen.action_trace_pan(1)
            made["timeline"] = await drawn(stage, screen, title)
    return made


async def drawn(stage: Stage, screen: TimelineScreen, title: str) -> str:
    """The picture of the timeline as it is now."""
    screen.draw()
    await stage.settle()
    return still(stage.strips(), stage.ground, title)


async def draw_watch(watched: Watched) -> dict[str, str]:
    """The screen of a watched program at its time, after its keys."""
    # The recording plays no time; to seek has the same effect before and after the screen starts to play it.
    source = WatchReplaySource(WatchRecording(watched.file), clock=lambda: 0.0)
    app = StallscopeApp(lambda: source, SETTINGS, first="watch")
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        source.seek(watched.at_s)
        while not isinstance(app.screen, WatchScreen) or not app.screen.query(WatchTable):
            await pilot.pause(0.01)
        screen = app.screen
        while not screen.query_one(WatchTable).view.rows:
            screen.draw()
            await pilot.pause(0.01)
        for key in watched.keys:
            await pilot.press(key)
        await pilot.pause()
        # Other rows can have changed the sizes of the panels.
        screen.draw()
        await pilot.pause()
        visible_screen_stack.set(app._background_screens)
        strips = screen._compositor.render_strips(screen.size)
        assert screen.moment is not None
        recorded = time.strftime("%Y-%m-%d", time.gmtime(screen.moment.wall_s))
        title = f"stallscope watch {watched.command} · NVIDIA H200 · {recorded}"
        return {watched.name: still(strips, screen.background_colors[1].hex6.lower(), title)}


def make(out: Path, recordings: Path = RECORDINGS) -> list[Path]:
    """Draw all pictures into ``out``; returns the files."""
    # The clock on the screen shows UTC, and colours are not to depend on who draws.
    os.environ.update(TZ="UTC", TERM="xterm-256color", COLORTERM="truecolor")
    os.environ.pop("NO_COLOR", None)
    time.tzset()
    made = []
    files = sorted(recordings.glob("*.rec"))
    with_timeline = {file: bool(Recording(file).traces()) for file in files}
    firsts = {min(file for file in files if with_timeline[file] is kind) for kind in set(with_timeline.values())}
    for file in files:
        for name, svg in asyncio.run(draw(file, file in firsts)).items():
            made.append(out / f"{name}.svg")
            made[-1].write_text(svg, encoding="utf-8")
    drawn = (draw_check(min(files), CHECK), *map(draw_watch, WATCHED), draw_demo(recordings / DEMO))
    for name, svg in (each for one in drawn for each in asyncio.run(one).items()):
        made.append(out / f"{name}.svg")
        made[-1].write_text(svg, encoding="utf-8")
    return made


def to_png(svg: Path) -> Path:
    """The PNG of an SVG file, beside it."""
    import io

    import cairosvg
    from PIL import Image

    drawn = cairosvg.svg2png(bytestring=svg.read_bytes(), output_width=SIZE[0] * CELL_W + 2 * MARGIN)
    file = svg.with_suffix(".png")
    Image.open(io.BytesIO(drawn)).quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


def main() -> None:
    """Draw them all and print their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots", help="where to (%(default)s)")
    parser.add_argument("--png", action="store_true", help="PNG files too")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for svg in make(asked.out):
        print(svg)
        if asked.png and svg.stem != MOVING:
            print(to_png(svg))


if __name__ == "__main__":
    main()
