"""``stallscope watch`` without a program: the processes that use the GPUs, as text, as a document and on the screen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner, Result

from factories.documents import validate
from factories.gpu_machine import MIB, FakeGpu, FakeMachine
from factories.waiting import LIMIT_S
from stallprobes.engine.backend import Options
from stallprobes.errors import NvmlUnavailable
from stallprobes.machine.gpu_process_reader import GpuProcessReader
from stallprobes.machine.gpu_processes import GpuProcessList
from stallprobes.watch.environment import WatchOptions
from stallscope.cli import main, screen, watch
from stallscope.cli.process import diagnostics, prewarm
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.watching import attached, process_list
from stallscope.cli.watching.files import WatchFiles
from stallscope.tui.settings import Settings
from stallscope.tui.sources.gpu_processes import GpuProcessSource

Invoke = Callable[..., Result]
Command = Callable[..., CompletedProcess[str]]
NO_DRIVER = "no NVIDIA driver: libnvidia-ml.so.1 was not found; install the NVIDIA driver"


def no_nvml() -> Any:
    raise NvmlUnavailable("no NVIDIA driver: libnvidia-ml.so.1 was not found", "install the NVIDIA driver")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: 100 * MIB, 901: 7 * MIB}, samples=[(900, 0.3, 97)]))
    machine.add(900, ["/usr/bin/python3", "train.py"], uid=0, start=1)
    machine.add(901, ["./solver"], uid=0, start=2)
    machine.refusals[901] = "it has no libcuda: wait until it uses CUDA."
    return machine


@pytest.fixture
def read(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Commands read this machine."""
    use(monkeypatch, machine.reader)
    return machine


def use(monkeypatch: pytest.MonkeyPatch, new_reader: Callable[[], GpuProcessReader]) -> None:
    monkeypatch.setattr(process_list, "GpuProcessSource", lambda: GpuProcessSource(new_reader=new_reader))


@pytest.fixture
def invoke() -> Invoke:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(watch.command, arguments)

    return run


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can show the screen."""
    monkeypatch.setattr(diagnostics, "program_screen_obstacle", lambda: "")
    monkeypatch.setattr(screen, "load_settings", lambda ascii_only: Settings(ascii=ascii_only))


@pytest.mark.parametrize("arguments", [(), ("--headless",), ("--ascii",)])
def test_without_a_terminal_the_list_is_printed(read: FakeMachine, invoke: Invoke, arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 0
    head, _, _, *rows = done.stdout.splitlines()
    assert head == "2 processes on 1 GPU, listed by NVML."
    assert rows[0].split() == ["900", "root", "0", "C", "100", "MiB", "97", "%", "yes", "python3", "train.py"]
    assert rows[-1] == "901: Cannot be attached: it has no libcuda: wait until it uses CUDA."
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [("--json",), ("--json", "--headless"), ("--json", "-")])
def test_as_a_document(read: FakeMachine, invoke: Invoke, arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    validate(document, "stallscope.processes/2")
    assert [process["pid"] for process in document["processes"]] == [900, 901]
    assert document["processes"][0]["command"] == "/usr/bin/python3 train.py"
    assert document["gpus"] == [{"index": 0, "name": "NVIDIA H200"}]


def test_a_document_is_no_screen_on_a_terminal_either(read: FakeMachine, invoke: Invoke, terminal: None) -> None:
    assert json.loads(invoke("--json").stdout)["schema"] == "stallscope.processes/2"


def test_an_empty_list_is_a_success_that_says_what_it_may_mean(read: FakeMachine, invoke: Invoke) -> None:
    read.end(900)
    read.end(901)
    done = invoke()
    assert (done.exit_code, done.stdout.startswith("No process uses a GPU")) == (0, True)
    assert json.loads(invoke("--json").stdout)["processes"] == []


def failed(invoke: Invoke, *arguments: str) -> str:
    done = invoke(*arguments)
    assert isinstance(done.exception, CommandError)
    assert done.exception.exit_code == 125
    assert done.stdout == ""
    return done.exception.sentence


def test_without_a_driver_it_fails_with_one_sentence(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, terminal: None
) -> None:
    bare = FakeMachine(tmp_path)
    use(monkeypatch, lambda: GpuProcessReader(bare.lister(no_nvml).read))
    sentence = f"the processes that use GPUs cannot be listed: {NO_DRIVER}"
    opened: list[str] = []
    monkeypatch.setattr(screen, "run_app", lambda *_, **__: opened.append("screen"))
    for arguments in ((), ("--headless",), ("--json",)):
        assert failed(invoke, *arguments) == sentence
    assert not opened


def test_without_nvml_it_lists_what_has_devices_open_and_says_why(
    read: FakeMachine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    read.add(77, ["python3", "inside.py"], devices=["/dev/nvidia0"])
    use(monkeypatch, lambda: GpuProcessReader(read.lister(no_nvml).read))
    done = invoke()
    assert done.exit_code == 0
    assert done.stdout.startswith("1 process has /dev/nvidia* open.\n")
    assert f"NVML cannot be used: {NO_DRIVER}." in " ".join(done.stdout.split())


def test_a_driver_that_does_not_answer_is_a_failure(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, machine: FakeMachine
) -> None:
    monkeypatch.setattr(process_list, "_ANSWER_S", 0.0)
    may_answer = threading.Event()

    def hang() -> GpuProcessList:
        may_answer.wait(LIMIT_S)
        return machine.lister().read()

    use(monkeypatch, lambda: GpuProcessReader(hang))
    try:
        assert failed(invoke).startswith("NVML or /proc has not answered for")
    finally:
        may_answer.set()


def test_a_failed_reading_is_a_failure(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> GpuProcessList:
        raise ValueError("a structure of another version")

    use(monkeypatch, lambda: GpuProcessReader(fail))
    assert failed(invoke) == "the processes cannot be read: ValueError: a structure of another version"


def test_the_real_machine_has_a_list_or_a_reason(stallscope_command: Command) -> None:
    done = stallscope_command("watch", "--json")
    if done.returncode == 0:
        validate(json.loads(done.stdout), "stallscope.processes/2")
    else:
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (125, "", 1)


# On a terminal.


def chosen_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, pid: int | None, code: int = 0
) -> list[tuple[tuple[int, WatchOptions, WatchFiles, float | None, Settings | None], dict[str, Any]]]:
    """On the screen ``pid`` is chosen, and it ends with ``code``; the arguments with which processes are attached."""
    attachments: list[tuple[Any, dict[str, Any]]] = []

    def run_app(create_source: Callable[[], GpuProcessSource], _: Settings, *, first: str) -> tuple[int, int | None]:
        assert first == "processes"
        assert create_source().listing is not None
        return code, pid

    def run_attached(*arguments: Any, **named: Any) -> int:
        attachments.append((arguments, named))
        return 0

    monkeypatch.setattr(screen, "run_app", run_app)
    monkeypatch.setattr(attached, "run_attached", run_attached)
    return attachments


def test_the_process_that_is_chosen_is_attached_with_the_options(
    read: FakeMachine, invoke: Invoke, terminal: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    attachments = chosen_on_the_screen(monkeypatch, 900)
    file = tmp_path / "report.json"
    done = invoke("--slow", "50", "--json", str(file), "--calls-only", "--seconds", "5", "--children", "--ascii")
    assert done.exit_code == 0
    (((pid, chosen, files, seconds, known), named),) = attachments
    assert pid == 900
    assert (chosen.slow_ns, chosen.calls_only) == (50_000, True)
    assert (files.json, seconds, known) == (file, 5.0, Settings(ascii=True))
    # Without records of work nothing can run beside it.
    assert named == {"children": True, "no_screen": "", "trial": None}


@pytest.mark.parametrize(("pid", "code"), [(None, 0), (None, 4), (900, ExitCode.INTERRUPTED)])
def test_without_a_choice_nothing_is_attached_and_the_exit_code_is_that_of_the_screen(
    read: FakeMachine, invoke: Invoke, terminal: None, monkeypatch: pytest.MonkeyPatch, pid: int | None, code: int
) -> None:
    attachments = chosen_on_the_screen(monkeypatch, pid, code)
    assert invoke().exit_code == code
    assert attachments == []


@pytest.mark.parametrize("option", ["--output", "--yield-to-profiler"])
def test_options_that_only_a_program_has_from_its_start_are_refused(
    read: FakeMachine, invoke: Invoke, terminal: None, option: str
) -> None:
    sentence = failed(invoke, option, *(["o"] if option == "--output" else []))
    assert sentence.startswith(f"{option} is for a program that watch starts, and PROGRAM... is missing")


# From the monitor.


@pytest.mark.parametrize(("code", "attached_pids"), [(0, [900]), (ExitCode.FAILED, [])])
def test_a_process_that_is_chosen_over_the_monitor_is_attached_after_its_end(
    terminal: None, monkeypatch: pytest.MonkeyPatch, code: int, attached_pids: list[int]
) -> None:
    pids: list[int] = []

    def run_app(*arguments: Any) -> tuple[int, int]:
        *_, first, tour = arguments
        assert (first, tour) == ("monitor", None)
        return code, 900

    def attach(pid: int) -> int:
        pids.append(pid)
        return 0

    monkeypatch.setattr(screen, "run_app", run_app)
    monkeypatch.setattr(prewarm, "start_engine", lambda _: None)
    assert screen.run_live(Options(profile="h200"), False, None, False, attach=attach) == code
    assert pids == attached_pids


def test_what_the_monitor_attaches_is_watched_as_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []

    def run_attached(*arguments: Any, **named: Any) -> int:
        watched.append((*arguments, named))
        return 125

    monkeypatch.setattr(diagnostics, "program_screen_obstacle", lambda: "")
    monkeypatch.setattr(screen, "load_settings", lambda ascii_only: Settings(ascii=ascii_only))
    monkeypatch.setattr(screen, "run_live", lambda *_, attach: attach(900))
    monkeypatch.setattr(attached, "run_attached", run_attached)
    done = CliRunner().invoke(main.cli, ["--sim", "--ascii"])
    assert done.exit_code == 125
    ((pid, chosen, files, seconds, known, named),) = watched
    assert (pid, seconds, known) == (900, None, Settings(ascii=True))
    assert chosen.slow_ns == 1_000_000
    assert files == WatchFiles()
    trial = named.pop("trial")
    assert (trial.chosen, trial.complete) == ((), False)
    assert named == {"children": False, "no_screen": ""}
