"""The screen of the processes that use the GPUs: on a machine made up for a test, alone and over the monitor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot

from factories.gpu_machine import CONTAINER_NAMESPACE, MIB, OWN_PID, FakeGpu, FakeMachine
from factories.hostile_text import HOSTILE, forbidden
from factories.screen import (
    QUICK,
    assert_snapshot,
    dialog_text,
    drawn_strips,
    is_open,
    live_monitor,
    settled,
    text_of,
    until,
)
from factories.waiting import LIMIT_S
from stallprobes.errors import NvmlUnavailable
from stallprobes.machine.gpu_process_reader import GpuProcessReader
from stallprobes.machine.gpu_processes import GpuProcessList
from stallscope.tui.actions import SCREENS
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.help import Help
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.processes.process_table import ProcessTable
from stallscope.tui.processes.screen import ProcessesScreen
from stallscope.tui.settings import Settings
from stallscope.tui.sources.gpu_processes import GpuProcessSource

REFUSAL = "it belongs to another user: run stallscope as that user, or with sudo, which has CAP_SYS_PTRACE."


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Two GPUs with a training on both, an engine of stallscope, and a process of another user."""
    gpus = [FakeGpu(compute={900: 61_641 * MIB}, samples=[(900, 0.3, 97)]) for _ in range(2)]
    gpus[0].compute |= {501: 512 * MIB, 902: 2 * MIB}
    gpus[1].compute |= {903: 300 * MIB}
    machine = FakeMachine(tmp_path, *gpus)
    machine.add(501, ["python3", "-m", "stallprobes.engine.main"], parent=OWN_PID, uid=0, start=1)
    words = ["/opt/conda/bin/python3.11", "-u", "train.py", "--config", "configs/large.yaml", "--devices", "2"]
    machine.add(900, words, uid=0, start=2)
    machine.add(902, ["./solver", "--steps", "100"], uid=3_999_999_999, start=3)
    machine.add(903, ["python3", "server.py"], uid=0, start=4)
    machine.refusals[902] = REFUSAL
    return machine


def source_of(machine: FakeMachine, new_reader: Callable[[], GpuProcessReader] | None = None) -> GpuProcessSource:
    return GpuProcessSource(new_reader=new_reader or machine.reader, refusal=machine.refusal)


@asynccontextmanager
async def opened(
    source: GpuProcessSource, size: tuple[int, int] = (80, 24), settings: Settings = QUICK
) -> AsyncIterator[tuple[Pilot[None], ProcessesScreen]]:
    """The screen alone, once it has a list or a failure."""
    app = StallscopeApp(lambda: source, settings, first="processes")
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: is_open(pilot, ProcessesScreen))
            screen = pilot.app.screen
            assert isinstance(screen, ProcessesScreen)
            yield pilot, screen
    finally:
        source.close()


async def listed(pilot: Pilot[None], screen: ProcessesScreen, *pids: int) -> None:
    """Wait until the table has these processes."""
    await until(pilot, lambda: [row.process.pid for row in screen.state.rows] == list(pids))


def selected(screen: ProcessesScreen) -> int | None:
    return None if screen.state.row is None else screen.state.row.process.pid


def chosen(pilot: Pilot[None]) -> int | None:
    """The process that the screen was left for."""
    pid: int | None = pilot.app.context.chosen_pid  # type: ignore[attr-defined]
    return pid


def shown(pilot: Pilot[None]) -> str:
    return text_of(drawn_strips(pilot.app))


@pytest.mark.parametrize(
    ("size", "name"),
    [((60, 18), "60x18"), ((80, 24), "80x24"), ((160, 48), "160x48")],
    ids=["60x18", "80x24", "160x48"],
)
async def test_what_it_looks_like(machine: FakeMachine, size: tuple[int, int], name: str) -> None:
    async with opened(source_of(machine), size) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        await pilot.press("down")
        await until(pilot, lambda: "belongs to another user" in shown(pilot))
        strips = await settled(pilot)
    assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
    assert_snapshot(f"processes-{name}", text_of(strips))


async def test_without_colour_and_in_ascii_it_shows_the_same(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(source_of(machine), settings=Settings(ascii=True)) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        await until(pilot, lambda: "attaches" in shown(pilot))
        text = text_of(await settled(pilot))
    assert text.isascii()
    for words in (">     900", " own ", " no ", "enter attaches"):
        assert words in text


async def test_the_first_that_can_be_attached_is_selected_and_enter_chooses_it(machine: FakeMachine) -> None:
    source = source_of(machine)
    async with opened(source) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        assert selected(screen) == 900
        await pilot.press("enter")
        await until(pilot, lambda: chosen(pilot) is not None)
        while pilot.app.is_running:
            await asyncio.sleep(0.01)
        assert chosen(pilot) == 900


async def test_the_keys_select_and_the_cursor_stays_on_its_process_while_others_come_and_go(
    machine: FakeMachine,
) -> None:
    async with opened(source_of(machine)) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        for keys, pid in ((("down",), 902), (("up", "up"), 501), (("up",), 903), (("home",), 501), (("end",), 903)):
            await pilot.press(*keys)
            assert selected(screen) == pid
        await pilot.press("pageup")
        assert selected(screen) == 501
        await pilot.press("down", "down")
        assert selected(screen) == 902
        # An older process on the first GPU comes before it, one ends, and the figures change.
        machine.add(77, ["old"], start=0)
        machine.nvml.gpus[0].compute |= {77: MIB, 902: 900 * MIB}
        machine.end(900)
        await listed(pilot, screen, 77, 501, 902, 903)
        assert selected(screen) == 902


async def test_a_selected_process_that_ends_is_marked_and_is_gone_when_another_one_is_selected(
    machine: FakeMachine,
) -> None:
    source = source_of(machine)
    async with opened(source) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        machine.end(900)
        await until(pilot, lambda: screen.state.row is not None and screen.state.row.ended)
        assert [row.process.pid for row in screen.state.rows] == [501, 900, 902, 903]
        await until(pilot, lambda: "ENDED" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "Process 900 has ended." in [one.message for one in pilot.app._notifications])
        await pilot.press("down")
        assert [row.process.pid for row in screen.state.rows] == [501, 902, 903]
        assert selected(screen) == 902
    assert chosen(pilot) is None


async def test_one_that_cannot_be_attached_says_why_below_the_table_and_at_the_key(machine: FakeMachine) -> None:
    source = source_of(machine)
    async with opened(source, (120, 36)) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        await pilot.press("down")
        await until(pilot, lambda: f"902 Cannot be attached: {REFUSAL}" in " ".join(shown(pilot).split()))
        await pilot.press("enter")
        sentence = f"Cannot be attached: {REFUSAL}"
        await until(pilot, lambda: sentence in [one.message for one in pilot.app._notifications])
        await pilot.press("home", "enter")
        await until(pilot, lambda: any("belongs to this stallscope" in one.message for one in pilot.app._notifications))
        assert 501 not in machine.asked
    assert chosen(pilot) is None


async def test_a_process_is_looked_at_once_more_before_it_is_attached(machine: FakeMachine) -> None:
    source = source_of(machine)
    async with opened(source) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        # The list asks again only when its clock has moved.
        machine.refusals[900] = "a debugger traces it: end the debugger."
        await pilot.press("enter")
        sentence = "Cannot be attached: a debugger traces it: end the debugger."
        await until(pilot, lambda: sentence in [one.message for one in pilot.app._notifications])
    assert chosen(pilot) is None


async def test_a_look_that_does_not_end_holds_up_neither_the_keys_nor_the_end(machine: FakeMachine) -> None:
    hung = threading.Event()

    def refusal(pid: int) -> str | None:
        hung.wait(LIMIT_S)
        return None

    source = GpuProcessSource(new_reader=machine.reader, refusal=refusal)
    async with opened(source) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        await pilot.press("enter")
        await until(pilot, lambda: "looking at process 900" in shown(pilot))
        await pilot.press("enter", "down")
        assert selected(screen) == 902
        await pilot.press("q")
        while pilot.app.is_running:
            await asyncio.sleep(0.01)
        assert chosen(pilot) is None
    hung.set()


async def test_keys_that_arrive_together_wait_for_the_list_and_for_the_question(machine: FakeMachine) -> None:
    listed_once, looked = threading.Event(), threading.Event()

    def read() -> GpuProcessList:
        listed_once.wait(LIMIT_S)
        return machine.lister().read()

    def refusal(pid: int) -> str | None:
        looked.wait(LIMIT_S)
        return None

    source = GpuProcessSource(new_reader=lambda: GpuProcessReader(read, period_s=0.02), refusal=refusal)
    async with live_monitor(wait=False) as pilot:
        context = pilot.app.context  # type: ignore[attr-defined]
        context.controllers[GpuProcessSource] = source
        keys = pilot.app.keys  # type: ignore[attr-defined]
        for key in ("P", "enter", "y"):
            event = Key(key, None)
            event.set_sender(pilot.app)
            pilot.app.post_message(event)
        await until(pilot, lambda: is_open(pilot, ProcessesScreen))
        await until(pilot, lambda: len(keys) == 2)
        listed_once.set()
        await until(pilot, lambda: "looking at process 900" in shown(pilot) and len(keys) == 1)
        looked.set()
        while pilot.app.is_running:
            await asyncio.sleep(0.01)
    assert chosen(pilot) == 900


async def test_a_click_selects_and_a_second_one_attaches(machine: FakeMachine) -> None:
    source = source_of(machine)
    async with opened(source) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        table = screen.query_one(ProcessTable)
        await until(pilot, lambda: len(table.targets) == 5)
        await pilot.click(ProcessTable, offset=(4, 4))
        assert selected(screen) == 903
        await pilot.click(ProcessTable, offset=(4, 4))
        await until(pilot, lambda: chosen(pilot) is not None)
    assert chosen(pilot) == 903


async def test_more_processes_than_lines_are_counted_and_scrolled_to(machine: FakeMachine) -> None:
    for pid in range(1000, 1040):
        machine.add(pid, ["worker"], start=pid)
        machine.nvml.gpus[0].compute[pid] = MIB
    async with opened(source_of(machine)) as (pilot, screen):
        await until(pilot, lambda: len(screen.state.rows) == 44)
        await until(pilot, lambda: "more)" in shown(pilot))
        await pilot.press("end")
        await until(pilot, lambda: "▸     903" in shown(pilot))
        await pilot.press("home")
        await until(pilot, lambda: "▸     501" in shown(pilot))


async def test_foreign_text_is_one_line(machine: FakeMachine) -> None:
    machine.add(950, [HOSTILE, "x"], start=5)
    machine.nvml.gpus[1].compute[950] = MIB
    machine.refusals[950] = HOSTILE
    async with opened(source_of(machine)) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903, 950)
        await pilot.press("end")
        await until(pilot, lambda: "▸     950" in shown(pilot))
        strips = await settled(pilot)
    assert not any(forbidden(strip.text) for strip in strips)
    assert [strip.cell_length for strip in strips] == [80] * 24


async def test_an_empty_list_says_what_it_may_mean(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(), namespace=CONTAINER_NAMESPACE)
    async with opened(source_of(machine)) as (pilot, screen):
        await until(pilot, lambda: "docker run --pid=host" in " ".join(shown(pilot).split()))
        # Nothing is selected, so these have no effect.
        await pilot.press("down", "enter", "end", "pagedown")
        assert screen.state.row is None


async def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)

    def load() -> object:
        raise NvmlUnavailable("no NVIDIA driver: libnvidia-ml.so.1 was not found", "install the NVIDIA driver")

    source = source_of(machine, lambda: GpuProcessReader(machine.lister(load).read, period_s=0.02))
    async with opened(source) as (pilot, _):
        sentence = "The processes that use GPUs cannot be listed: no NVIDIA driver"
        await until(pilot, lambda: sentence in " ".join(shown(pilot).split()))
        await until(pilot, lambda: "NOT LISTED" in shown(pilot))


async def test_while_nvml_does_not_answer_the_screen_says_so_and_keys_work(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallscope.tui.sources.gpu_processes.SILENT_AFTER_S", 0.05)
    hung = threading.Event()

    def read() -> GpuProcessList:
        hung.wait(LIMIT_S)
        return machine.lister().read()

    async with opened(source_of(machine, lambda: GpuProcessReader(read, period_s=0.02))) as (pilot, screen):
        await until(pilot, lambda: "NOT READ" in shown(pilot) and "NVML or /proc has not answered for" in shown(pilot))
        await pilot.press("question_mark")
        await until(pilot, lambda: is_open(pilot, Help))
        await pilot.press("escape")
        hung.set()
        await listed(pilot, screen, 501, 900, 902, 903)
        await until(pilot, lambda: "● live" in shown(pilot))


async def test_a_failed_reading_is_stated_and_the_last_list_stays(machine: FakeMachine) -> None:
    lister, broken = machine.lister(), threading.Event()

    def read() -> GpuProcessList:
        if broken.is_set():
            raise ValueError("a structure of another version")
        return lister.read()

    async with opened(source_of(machine, lambda: GpuProcessReader(read, period_s=0.02))) as (pilot, screen):
        await listed(pilot, screen, 501, 900, 902, 903)
        broken.set()
        await until(pilot, lambda: "a structure of another version" in shown(pilot))
        assert len(screen.state.rows) == 4


async def test_the_key_bar_and_the_help_name_every_action(machine: FakeMachine) -> None:
    async with opened(source_of(machine), (160, 48)) as (pilot, _):
        await until(pilot, lambda: "enter attach" in shown(pilot))
        # There is no monitor to return to.
        assert "esc " not in shown(pilot).splitlines()[-1]
        await pilot.press("escape", "P")
        assert isinstance(pilot.app.screen, ProcessesScreen)
        await pilot.press("question_mark")
        await until(pilot, lambda: is_open(pilot, Help))
        text = dialog_text(pilot.app.screen)
        assert "attach the process" in text
        assert "select a process" in text


async def test_without_a_process_the_key_bar_names_no_key_that_attaches_one(machine: FakeMachine) -> None:
    for pid in (501, 900, 902, 903):
        machine.end(pid)
    async with opened(source_of(machine), (160, 48)) as (pilot, screen):
        await listed(pilot, screen)
        await until(pilot, lambda: "enter attach" not in shown(pilot) and "? help" in shown(pilot))


async def test_every_action_has_a_method() -> None:
    for action in SCREENS["processes"]:
        *namespace, method = action.call.partition("(")[0].split(".")
        assert callable(getattr(StallscopeApp if namespace else ProcessesScreen, f"action_{method}"))


async def test_over_the_monitor_it_asks_before_the_monitor_ends(machine: FakeMachine) -> None:
    source = source_of(machine)
    async with live_monitor(wait=False) as pilot:
        context = pilot.app.context  # type: ignore[attr-defined]
        context.controllers[GpuProcessSource] = source
        await pilot.press("P")
        await until(pilot, lambda: is_open(pilot, ProcessesScreen))
        screen = pilot.app.screen
        assert isinstance(screen, ProcessesScreen)
        await listed(pilot, screen, 501, 900, 902, 903)
        await until(pilot, lambda: "esc back" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: is_open(pilot, Monitor))
        # Nothing is read while nobody looks.
        assert source.listing is None
        await pilot.press("P")
        await until(pilot, lambda: is_open(pilot, ProcessesScreen))
        screen = pilot.app.screen
        assert isinstance(screen, ProcessesScreen)
        await listed(pilot, screen, 501, 900, 902, 903)
        await pilot.press("enter")
        await until(pilot, lambda: is_open(pilot, Ask))
        await pilot.press("n")
        await until(pilot, lambda: is_open(pilot, ProcessesScreen))
        assert chosen(pilot) is None
        await pilot.press("enter")
        await until(pilot, lambda: is_open(pilot, Ask))
        await pilot.press("y")
        while pilot.app.is_running:
            await asyncio.sleep(0.01)
    assert chosen(pilot) == 900
