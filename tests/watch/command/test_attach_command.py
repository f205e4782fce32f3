"""``stallscope watch --pid`` beside the stand-ins: screen and report, how it ends, and what its arguments exclude."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.attaching import RunningProgram
from factories.command_line import Command, Process, start
from factories.documents import validate
from factories.stand_in import StandIn
from factories.terminal import OpenTerminal
from factories.waiting import wait_until
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.live.recording import WatchRecording

SIZE = (120, 40)


@pytest.fixture
def program(stand_in: StandIn) -> Iterator[RunningProgram]:
    """A program that makes calls."""
    with RunningProgram(stand_in, "poll") as started:
        yield started


def unbroken(text: str) -> str:
    """A report without its breaks of lines."""
    return " ".join(text.split())


def state(program: RunningProgram) -> ControlState | None:
    """What the library in the program does; None where it is not loaded."""
    control = Control.of(Target(program.pid))
    if control is None:
        return None
    with control:
        return control.state


def wait_for_recording(program: RunningProgram) -> None:
    wait_until(lambda: state(program) is ControlState.AWAKE, "a recording")


def left_over(settings: dict[str, str]) -> list[str]:
    """What is left in the folder for temporary files."""
    return os.listdir(settings["XDG_RUNTIME_DIR"])


def test_work_of_a_program_that_instantiates_graphs_again_and_again_is_not_recorded(
    stand_in: StandIn, settings: dict[str, str], tmp_path: Path, stallscope_command: Command
) -> None:
    with RunningProgram(stand_in, "poll", "graphs") as program:
        for cost, is_recorded in (("5", False), ("100", True)):
            file = tmp_path / f"calls-{cost}.json"
            words = ["--pid", str(program.pid), "--seconds", "1", "--headless", "--cost", cost, "--json", str(file)]
            done = stallscope_command("watch", *words, env=settings)
            assert done.returncode == 0, done.stderr
            document = json.loads(file.read_text())
            assert (document["processes"][0]["records"] > 0) is is_recorded
            # Without records, CUPTI leaves the process.
            assert document["attached"][0]["graphs"] is is_recorded
            said = "Work of the GPU was not recorded while the program instantiated 100 graphs a second or more"
            assert (said in unbroken(done.stdout)) is not is_recorded


def test_a_report_of_some_seconds(
    program: RunningProgram, settings: dict[str, str], tmp_path: Path, stallscope_command: Command
) -> None:
    file, trace = tmp_path / "calls.json", tmp_path / "trace.json"
    words = ["--pid", str(program.pid), "--seconds", "1", "--headless", "--cost", "100"]
    done = stallscope_command("watch", *words, "--json", str(file), "--trace", str(trace), env=settings)
    assert done.returncode == 0, done.stderr
    text = unbroken(done.stdout)
    assert f"attached (process {program.pid}) · 1 process" in text
    # Its sleep has a name where the kernel shows places.
    # What bounds it depends on the CPUs that it gets.
    assert "attached is " in text or "What bounds attached is not known" in text
    assert "launching_thread in attached" in text
    assert f"To load the library, a thread of process {program.pid} was stopped for " in text
    assert " Attaching and detaching held a call up for " in text
    assert "no steady state" not in text
    assert f"attached to attached (process {program.pid}), of which a thread was stopped for " in done.stderr
    document = json.loads(file.read_text())
    validate(document, "stallscope.watch/3")
    (cost,) = document["attached"]
    assert cost["pid"] == program.pid
    assert cost["stopped_ns"] > 0
    assert cost["held_up_ns"] > 0
    # A call stays longer by 0.2 to 1.1 us after it was recorded with the GPU's work.
    assert 0 < cost["after_low"] < cost["after_high"]
    assert " Until it ends, the process stays slower by " in text
    assert not cost["graphs"]
    (process,) = document["processes"]
    assert process["state"] == "recording"
    assert process["records"] > 0
    assert (document["program"], document["exit_code"], document["problems"]) == (None, None, [])
    assert json.loads(trace.read_text())["traceEvents"]
    assert state(program) is ControlState.ASLEEP
    assert left_over(settings) == []
    program.launches()
    assert program.end() == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_a_signal_ends_it_with_a_report(
    program: RunningProgram, settings: dict[str, str], number: signal.Signals
) -> None:
    with start("watch", "--pid", str(program.pid), "--headless", env=settings) as watch:
        wait_for_recording(program)
        watch.send_signal(number)
        output, errors = watch.communicate()
    assert (watch.returncode, "1 process" in output) == (0, True), errors
    assert state(program) is ControlState.ASLEEP
    assert left_over(settings) == []
    program.launches()
    assert program.end() == (0, "", "")


def test_sigusr1_asks_for_a_report(program: RunningProgram, settings: dict[str, str], tmp_path: Path) -> None:
    with open(tmp_path / "errors", "w") as errors, _watch(program, settings, errors.fileno()) as watch:
        wait_for_recording(program)
        watch.send_signal(signal.SIGUSR1)
        wait_until(lambda: "· 1 process ·" in (tmp_path / "errors").read_text(), "a report")
        watch.send_signal(signal.SIGINT)
        watch.communicate()
    assert watch.returncode == 0


def _watch(program: RunningProgram, settings: dict[str, str], errors: int) -> Process:
    return start("watch", "--pid", str(program.pid), "--headless", env=settings, stderr=errors)


def test_it_ends_with_the_program(program: RunningProgram, settings: dict[str, str]) -> None:
    with start("watch", "--pid", str(program.pid), "--headless", env=settings) as watch:
        wait_for_recording(program)
        assert program.end() == (0, "", "")
        output, errors = watch.communicate()
    assert (watch.returncode, "1 process" in output) == (0, True), errors
    assert left_over(settings) == []


def test_a_killed_stallscope_leaves_the_program_as_it_was(program: RunningProgram, settings: dict[str, str]) -> None:
    with start("watch", "--pid", str(program.pid), "--headless", env=settings) as watch:
        wait_for_recording(program)
        watch.kill()
        watch.communicate()
    wait_until(lambda: state(program) is ControlState.ASLEEP, "sleep")
    program.launches()
    # The next one removes what was left, too.
    done = start("watch", "--pid", str(program.pid), "--headless", "--seconds", "0.5", env=settings)
    assert "The library was in process" in unbroken(done.communicate()[0])
    assert left_over(settings) == []
    assert program.end() == (0, "", "")


# Says that the thread "hung" of the process is at a line of Python.
PY_SPY = r"""#!/bin/sh
for pid; do :; done
frame='{"name": "step", "filename": "/train.py", "line": 42}'
for task in /proc/$pid/task/*; do
    [ "$(cat $task/comm)" = hung ] && echo "[{\"os_thread_id\": ${task##*/}, \"frames\": [$frame]}]"
done
exit 0
"""


@pytest.mark.parametrize("with_py_spy", [False, True])
def test_a_call_from_before_is_shown_by_where_its_thread_waits(
    stand_in: StandIn, settings: dict[str, str], tmp_path: Path, stallscope_command: Command, with_py_spy: bool
) -> None:
    (tmp_path / "bin").mkdir()
    if with_py_spy:
        (tmp_path / "bin" / "py-spy").write_text(PY_SPY)
        (tmp_path / "bin" / "py-spy").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    with RunningProgram(stand_in, "poll", "hung") as program:
        words = ["watch", "--pid", str(program.pid), "--seconds", "1", "--headless"]
        done = stallscope_command(*words, env={**settings, "PATH": path})
    text = unbroken(done.stdout)
    assert "A call of thread hung (" in text
    assert " was in flight before, and has not returned: it waits in " in text
    assert ("; it was called from train.py:42 in step." in text) is with_py_spy


@pytest.fixture
def asleep(settings: dict[str, str], stallscope_command: Command) -> dict[str, str]:
    """The variables that are printed for programs in which the library sleeps."""
    done = stallscope_command("watch", "--print-env", "--asleep", env=settings)
    assert done.returncode == 0
    assert done.stderr == "stallscope: watch a program that was started so by: stallscope watch --pid PID\n"
    assert left_over(settings) == []
    lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
    return {name: shlex.split(value)[0] for name, _, value in lines}


def test_a_program_that_sleeps_is_woken_with_its_children(
    stand_in: StandIn, settings: dict[str, str], asleep: dict[str, str], stallscope_command: Command
) -> None:
    with RunningProgram(stand_in, "read", program="parent.sh", settings=asleep) as parent:
        words = ["watch", "--pid", str(parent.pid), "--seconds", "2", "--headless"]
        # The shell itself makes no calls.
        alone = stallscope_command(*words, env=settings)
        assert alone.returncode == 125
        assert "has not loaded libcuda" in alone.stderr
        (child,) = map(int, Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split())
        done = stallscope_command("watch", "--pid", str(child), *words[3:], "--children", env=settings)
        assert done.returncode == 0, done.stderr
        assert f"The library was in process {child} already." in unbroken(done.stdout)
        assert parent.end()[0] == 0


def test_a_launcher_that_uses_no_cuda_has_its_children_attached(
    stand_in: StandIn, settings: dict[str, str], stallscope_command: Command
) -> None:
    with RunningProgram(stand_in, "poll", program="parent.sh", settings=settings) as parent:
        words = ["watch", "--pid", str(parent.pid), "--seconds", "2", "--headless"]
        done = stallscope_command(*words, "--children", env=settings)
        assert done.returncode == 0, done.stderr
        assert "attached to a process of " in unbroken(done.stderr)
        assert "· 1 process ·" in done.stdout
        assert parent.end()[0] == 0
        assert left_over(settings) == []


def test_children_are_attached_too(stand_in: StandIn, settings: dict[str, str], stallscope_command: Command) -> None:
    with RunningProgram(stand_in, "poll", "parent") as program:
        done = stallscope_command(
            "watch", "--pid", str(program.pid), "--seconds", "2", "--headless", "--children", env=settings
        )
        assert done.returncode == 0, done.stderr
        assert "· 2 processes ·" in done.stdout
        assert program.end()[0] == 0


def test_one_that_cannot_be_attached(settings: dict[str, str], stallscope_command: Command) -> None:
    # Not this process, in which another test may have loaded a libcuda of its own.
    with subprocess.Popen(["sleep", "600"]) as program:
        try:
            done = stallscope_command("watch", "--pid", str(program.pid), "--headless", env=settings)
        finally:
            program.kill()
    assert (done.returncode, done.stdout) == (125, "")
    assert "has not loaded libcuda, so it makes no CUDA calls: attach once it does" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert left_over(settings) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--pid", "1", "sleep", "1"), "--pid starts nothing, so it takes no PROGRAM"),
        (("--pid", "1", "--print-env"), "--pid and --print-env exclude each other"),
        (("--pid", "1", "--attach", "/tmp"), "--pid and --attach exclude each other"),
        (("--pid", "1", "--asleep"), "--asleep is for --print-env"),
        (("--pid", "1", "--output", "out"), "--output is for a program that watch starts; --pid starts nothing"),
        (("--pid", "1", "--yield-to-profiler"), "--yield-to-profiler takes effect when a program starts"),
        (("--seconds", "1", "sleep", "1"), "--seconds is for --pid"),
        (("--children", "sleep", "1"), "--children is for --pid"),
        (("--print-env", "--asleep", "--slow", "5"), "--slow is for the recording, which --pid begins"),
        (("--pid", "0"), "--pid"),
        (("--pid", "x"), "--pid"),
    ],
    ids=" ".join,
)
def test_what_its_arguments_exclude(
    settings: dict[str, str], stallscope_command: Command, words: tuple[str, ...], reason: str
) -> None:
    done = stallscope_command("watch", *words, env=settings)
    assert (done.returncode, done.stdout) == (125, "")
    assert reason in done.stderr


def test_the_screen_shows_the_program_and_q_detaches(
    program: RunningProgram, settings: dict[str, str], terminal: OpenTerminal, tmp_path: Path
) -> None:
    record = tmp_path / "calls.rec"
    shown = terminal("watch", "--pid", str(program.pid), "--record", str(record), size=SIZE, **settings)
    shown.wait_for("cuLaunchKernel")
    shown.wait_for(f"pid {program.pid}")
    assert shown.quit() == 0
    assert "Attaching and detaching held a call up for" in shown.text()
    assert state(program) is ControlState.ASLEEP
    assert left_over(settings) == []
    assert WatchRecording(record).at(0).moment.program.pid == program.pid
    program.launches()
    assert program.end() == (0, "", "")


def test_the_screen_says_what_is_waited_for(
    stand_in: StandIn, settings: dict[str, str], terminal: OpenTerminal, tmp_path: Path
) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_WAITS": str(tmp_path / "go")}) as program:
        shown = terminal("watch", "--pid", str(program.pid), size=SIZE, **settings)
        shown.wait_for("waiting: cuptiSubscribe has not returned")
        (tmp_path / "go").touch()
        shown.wait_for("cuLaunchKernel")
        assert shown.quit() == 0
        assert program.end() == (0, "", "")


def test_the_screen_closes_after_some_seconds(
    program: RunningProgram, settings: dict[str, str], terminal: OpenTerminal
) -> None:
    shown = terminal("watch", "--pid", str(program.pid), "--seconds", "3", size=SIZE, **settings)
    assert shown.wait_for_end() == 0
    assert state(program) is ControlState.ASLEEP
    assert left_over(settings) == []
    program.launches()


def test_a_report_behind_the_screen_may_take_its_time(
    stand_in: StandIn, settings: dict[str, str], terminal: OpenTerminal, tmp_path: Path
) -> None:
    """It waits for py-spy, longer than a command without a report may take after a signal."""
    (tmp_path / "py-spy").write_text(PY_SPY.replace("for pid; do :; done", "for pid; do :; done; sleep 4", 1))
    (tmp_path / "py-spy").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    with RunningProgram(stand_in, "poll", "hung") as program:
        words = ["watch", "--pid", str(program.pid), "--seconds", "1"]
        shown = terminal(*words, size=SIZE, **{**settings, "PATH": path})
        assert shown.wait_for_end() == 0
        assert "was in flight before, and has not returned" in unbroken(shown.text())


def test_the_screen_says_that_the_program_has_ended(
    program: RunningProgram, settings: dict[str, str], terminal: OpenTerminal
) -> None:
    shown = terminal("watch", "--pid", str(program.pid), size=SIZE, **settings)
    shown.wait_for("cuLaunchKernel")
    assert program.end() == (0, "", "")
    shown.wait_for("the process has ended")
    assert shown.quit() == 0
