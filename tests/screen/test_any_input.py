"""Whatever arrives on stdin, the screen lives; if it fails all the same, its exit code says so."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from textual.pilot import Pilot
from textual.widgets import OptionList

from factories import command_line
from factories.gpu_machine import FakeGpu, FakeMachine
from factories.recordings import STALL
from factories.screen import drawn_strips, is_open, live_monitor, until
from factories.terminal import OpenTerminal
from factories.watch_moments import moments, record
from stallprobes.recording.recording import Recording
from stallprobes.watch.live.recording import WatchRecording
from stallscope.tui.app import Palette, StallscopeApp
from stallscope.tui.common.printable_text import PrintableInput
from stallscope.tui.common.screen import ActionScreen
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.patterns.screen import PatternsScreen
from stallscope.tui.processes.screen import ProcessesScreen
from stallscope.tui.settings import Settings
from stallscope.tui.sources.gpu_processes import GpuProcessSource
from stallscope.tui.sources.replay import ReplaySource
from stallscope.tui.sources.watch_replay import WatchReplaySource
from stallscope.tui.terminal_input import PASTE_S, InputDecoder
from stallscope.tui.watch.screen import WatchScreen

pytestmark = pytest.mark.usefixtures("without_terminal_updates")
# More of them for a long run.
SEEDS = range(max(1, settings().max_examples // 50))
_CHUNKS, _CHUNK = 12, 24
# What selects something, beside bytes of any value.
_LIKELY = b"abcdefghijklmnopqrstuvwxyzBT0123456789?+-[] \r\t\x1b\x10\x1a"
_ARROWS = (b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D")
_SEQUENCES = (*_ARROWS, b"\r\r", b"\x1b[5~", b"\x1b[6~", b"\x1b[H", b"\x1b[F", b"\x1b[Z")
_CLICK = b"\x1b[<0;1;1M\x1b[<0;1;1m"


def _junk(seed: int) -> list[bytes]:
    """Chunks of random keys, sequences, mouse reports and bytes."""
    source = random.Random(seed)

    def piece() -> bytes:
        kind = source.random()
        if kind < 0.5:
            return bytes([source.choice(_LIKELY)])
        if kind < 0.75:
            return source.choice(_SEQUENCES)
        if kind < 0.9:
            column, line, button = source.randrange(1, 170), source.randrange(1, 50), source.choice((0, 0, 2, 64, 65))
            return b"\x1b[<%d;%d;%dM\x1b[<%d;%d;%dm" % (button, column, line, button, column, line)
        if kind < 0.93:
            return b"\x1b[200~" + source.randbytes(5)
        return source.randbytes(4)

    return [b"".join(piece() for _ in range(_CHUNK)) for _ in range(_CHUNKS)]


async def _send(pilot: Pilot[None], chunks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Send ``chunks`` to the app as its driver does. Quitting has no effect, and is seen to be asked for."""
    monkeypatch.setattr(pilot.app, "exit", lambda *_, **__: None)
    now_s = [0.0]
    decoder = InputDecoder(lambda: now_s[0])
    driver = pilot.app._driver
    assert driver is not None
    for chunk in chunks:
        now_s[0] += PASTE_S
        for message in (*decoder.feed(chunk), *decoder.tick()):
            driver.process_message(message)
        await pilot.pause()
        drawn_strips(pilot.app)
    assert pilot.app._exception is None
    # The first screen is never removed.
    assert isinstance(pilot.app.screen_stack[1], ActionScreen)


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_bytes_do_not_end_the_screen_of_a_recording(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A key saves the screen here.
    monkeypatch.chdir(tmp_path)
    app = StallscopeApp(lambda: ReplaySource(Recording(STALL)), Settings())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        await _send(pilot, _junk(seed), monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_bytes_do_not_end_the_screen_of_a_watched_program(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "watch.rec", moments(3, exit_code=1))
    with closing(WatchReplaySource(WatchRecording(tmp_path / "watch.rec"))) as source:
        app = StallscopeApp(lambda: source, Settings(), first=WatchScreen.NAME)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: is_open(pilot, WatchScreen))
            await _send(pilot, _junk(seed), monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_bytes_do_not_end_the_screen_of_processes(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = FakeMachine(tmp_path / "machine", FakeGpu(compute=dict.fromkeys(range(1000, 1030), 1 << 20)))
    for pid in range(1000, 1030):
        machine.add(pid, ["python3", "train.py"])
    with closing(GpuProcessSource(new_reader=machine.reader, refusal=machine.refusal)) as source:
        app = StallscopeApp(lambda: source, Settings(), first=ProcessesScreen.NAME)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: is_open(pilot, ProcessesScreen))
            await _send(pilot, _junk(seed), monkeypatch)


async def test_random_bytes_do_not_end_the_live_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    async with live_monitor(wait=False) as pilot:
        # Without the matrix, whose check is long.
        await _send(pilot, [chunk.replace(b"m", b"") for chunk in _junk(100)[::2]], monkeypatch)


@pytest.mark.parametrize(
    "keys", [b"o\r\r\r", b"\x10\r\r\r", b"\x10theme\r\r\r", b"?\x1b\x1b\x1b", b"e\x1b\x1b", _CLICK * 3]
)
async def test_an_answer_given_twice_closes_one_screen(keys: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    app = StallscopeApp(lambda: ReplaySource(Recording(STALL)), Settings())
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        for opened in (b"", b"?", b"e"):
            await _send(pilot, [opened, keys, b"\x1b"], monkeypatch)


async def test_a_selection_made_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Monitor] = []
    monkeypatch.setattr(Monitor, "action_help", lambda screen: calls.append(screen))
    async with live_monitor() as pilot:
        await pilot.press("o")
        listed = pilot.app.screen.query_one(OptionList)
        listed.action_select()
        listed.action_select()
        await until(pilot, lambda: is_open(pilot, Monitor))
        await pilot.press("ctrl+p", *"help")
        palette = pilot.app.screen
        assert isinstance(palette, Palette)
        await until(pilot, lambda: palette.query_one(OptionList).option_count == 1)
        await _send(pilot, [b"\r\r"], monkeypatch)
        await until(pilot, lambda: calls and is_open(pilot, Monitor))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: is_open(pilot, Palette))
        await pilot.press("escape")
        assert len(calls) == 1


async def test_keys_before_a_list_is_drawn_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    app = StallscopeApp(lambda: ReplaySource(Recording(STALL)), Settings())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        for keys in (b"\x10\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[A\x1b[B\r", b"o\x1b[5~\x1b[6~\r"):
            await _send(pilot, [keys], monkeypatch)
            await pilot.press("escape")


async def test_words_that_arrive_together_with_the_key_of_the_search_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = StallscopeApp(lambda: ReplaySource(Recording(STALL)), Settings())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        chosen: list[tuple[str, str] | None] = []
        monkeypatch.setattr(Monitor, "_load_selected", lambda _, *choice: chosen.append(choice))
        assert app.context is not None
        picker = PatternsScreen(app.context)
        await app.push_screen(picker)
        await _send(pilot, [b"/wakeup / x\x7f\x7f"], monkeypatch)
        assert picker.query_one(PrintableInput).value == "wakeup /"
        await pilot.press("escape")
        await _send(pilot, [b"/wakeup after-1s\r"], monkeypatch)
        await until(pilot, lambda: chosen)
        assert chosen == [("idle-wakeup", "after-1s")]


def test_hostile_bytes_in_a_terminal(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    for data in (b"\xff", b"\xe9k", b"\x1b[M \xff\x80", b"\x10\x1b[5~", b"\x1b", b"\x1b[48;0;0;0;0t\x1b[99999999u"):
        screen.send(data)
        screen.read(0.3)
    # A paste whose end never comes.
    screen.send(b"\x1b[200~\xff")
    screen.read(PASTE_S + 0.3)
    # What is still taken for a part of the paste has no effect.
    assert screen.quit() == 0
    assert "Traceback" not in screen.text()


def test_a_screen_that_fails_exits_4_with_a_sentence_and_a_file(terminal: OpenTerminal, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from stallscope.tui.monitor.screen import Monitor\nMonitor.action_pause = lambda self: {}['planted']\n"
    )
    paths = ":".join((str(tmp_path), *command_line.ROOTS))
    screen = terminal("--sim", "h200", PYTHONPATH=paths, XDG_STATE_HOME=str(tmp_path))
    screen.wait_for("live")
    since = screen.press("p")
    assert screen.wait_for_end() == 4
    said = screen.text(since)
    assert "stallscope: the screen failed (KeyError: 'planted')" in said
    assert "Traceback" not in said
    assert "action_pause" not in said
    crash = (tmp_path / "stallscope" / "crash.txt").read_text()
    assert "Traceback" in crash
    assert "KeyError" in crash


def test_a_screen_that_runs_out_of_memory_exits_4_with_a_sentence_and_no_file(
    terminal: OpenTerminal, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from stallscope.tui.monitor.screen import Monitor\n"
        "def fail(self): raise MemoryError\n"
        "Monitor.action_pause = fail\n"
    )
    paths = ":".join((str(tmp_path), *command_line.ROOTS))
    screen = terminal("--sim", "h200", PYTHONPATH=paths, XDG_STATE_HOME=str(tmp_path))
    screen.wait_for("live")
    since = screen.press("p")
    assert screen.wait_for_end() == 4
    assert "stallscope: too little memory" in screen.text(since)
    assert "defect" not in screen.text(since)
    assert b"\x1b[?1049l" in screen.raw[since:]
    assert not (tmp_path / "stallscope").exists()
