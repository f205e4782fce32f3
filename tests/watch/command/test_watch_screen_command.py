"""``stallscope watch`` on a terminal: the screen beside programs that use the stand-ins, from start to exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from factories import processes
from factories.command_line import ROOTS, TIMEOUT_S, Command, start
from factories.documents import validate
from factories.stand_in import StandIn
from factories.terminal import OpenTerminal, Terminal
from factories.waiting import wait_until
from stallprobes.errors import RecordingError
from stallprobes.watch.live.recording import WatchRecording

SIZE = (120, 36)
# Says which signal it gets, and ends with 40 and its number. It uses sigwait, since pause() may miss a signal.
WAITING = """\
import os, signal, sys
numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("input:", repr(sys.stdin.read()), "terminal:", os.isatty(1), flush=True)
try:
    open("/dev/tty")
except OSError:
    print("no terminal of its own", flush=True)
print("ready", flush=True)
number = signal.sigwait(numbers)
os.write(1, b"got %d\\n" % number)
os._exit(40 + number)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "waiting.py"
    file.write_text(WAITING)
    return str(file)


def folders(settings: dict[str, str]) -> list[str]:
    """What is left in the folder for temporary files."""
    return os.listdir(settings["XDG_RUNTIME_DIR"])


def watching(terminal: OpenTerminal, settings: dict[str, str], *arguments: str) -> Terminal:
    return terminal("watch", *arguments, size=SIZE, **settings)


def test_a_program_that_ends_stays_on_the_screen_with_its_calls_and_exit_code(
    terminal: OpenTerminal, settings: dict[str, str], stand_in: StandIn, tmp_path: Path, stallscope_command: Command
) -> None:
    record, report, trace = tmp_path / "a.rec", tmp_path / "a.json", tmp_path / "trace.json"
    files = ("--record", str(record), "--json", str(report), "--trace", str(trace))
    host = f"{stand_in.folder / 'host'} copies; echo done; exit 7"
    screen = watching(terminal, settings, *files, "--", "sh", "-c", host)
    screen.wait_for("ENDED, exit code 7")
    screen.wait_for("cuMemcpyDtoHAsync_v2")
    screen.wait_for("done")
    since = screen.press("q")
    assert screen.wait_for_end() == 7
    # The report, after the last output of a program that failed.
    text = screen.text(since)
    assert "The last output of sh:" in text
    assert "Time lost by cause" in text
    assert f"recorded to {record}" in text
    assert folders(settings) == []
    document = json.loads(report.read_text(encoding="utf-8"))
    validate(document, "stallscope.watch/3")
    assert (document["exit_code"], document["program"][0]) == (7, "sh")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert {"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH_v2"} <= {event["name"] for event in events}
    replayed = stallscope_command("replay", str(record), "--json")
    again = json.loads(replayed.stdout)
    validate(again, "stallscope.watch/3")
    assert [call["sentence"] for call in again["processes"][0]["slow_calls"]] == [
        call["sentence"] for call in document["processes"][0]["slow_calls"]
    ]
    assert again["exit_code"] == 7


def test_quitting_ends_the_program_as_ctrl_c_would(
    terminal: OpenTerminal, settings: dict[str, str], script: str
) -> None:
    screen = watching(terminal, settings, sys.executable, script)
    screen.wait_for("ready")
    # Nothing of it is drawn beside the pane: it has an empty input and no terminal.
    screen.wait_for("input: '' terminal: True")
    screen.wait_for("no terminal of its own")
    since = screen.press("q")
    screen.wait_for("still runs. End it?", since=since)
    since = screen.press("y")
    assert screen.wait_for_end() == 40 + signal.SIGINT
    assert "SIGINT sent to" in screen.text(since)
    assert "got 2" in screen.text(since)
    assert folders(settings) == []


def test_a_stopped_program_is_ended_too(terminal: OpenTerminal, settings: dict[str, str]) -> None:
    screen = watching(terminal, settings, "sh", "-c", "kill -STOP $$; sleep 3600")
    screen.wait_for("live")
    (program,) = processes.children(screen.pid)
    screen.wait_until(lambda: state(program) == "T", "the program is stopped")
    since = screen.press("q")
    screen.wait_for("still runs. End it?", since=since)
    screen.press("y")
    assert screen.wait_for_end() == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_program_whose_exit_code_counts(
    terminal: OpenTerminal, settings: dict[str, str], script: str, number: signal.Signals
) -> None:
    screen = watching(terminal, settings, sys.executable, script)
    screen.wait_for("ready")
    os.kill(screen.pid, number)
    assert screen.wait_for_end() == 40 + number
    assert folders(settings) == []


def test_ctrl_z_stops_the_program_too(terminal: OpenTerminal, settings: dict[str, str], script: str) -> None:
    shell = terminal(shell=True, size=SIZE, **settings)
    shell.wait_for("$ ")
    since = shell.press(f"{sys.executable} -m stallscope watch {sys.executable} {script}\n")
    shell.wait_for("ready", since=since)
    (watch,) = processes.children(shell.pid)
    (program,) = processes.children(watch)
    since = shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    shell.wait_until(lambda: state(program) == "T", "the program is stopped")
    since = shell.press("fg; echo code=$?\n")
    shell.wait_until(lambda: state(program) == "S", "the program continues")
    os.kill(program, signal.SIGTERM)
    shell.wait_for("ENDED, exit code 55", since=since)
    shell.press("q")
    shell.wait_for("code=55", since=since)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_output_goes_to_a_file_instead(terminal: OpenTerminal, settings: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "out.log"
    screen = watching(terminal, settings, "--output", str(file), "sh", "-c", "echo out; echo err >&2")
    screen.wait_for("ENDED, exit code 0")
    screen.wait_for("It goes to")
    screen.press("q")
    assert screen.wait_for_end() == 0
    assert file.read_text() == "out\nerr\n"


@pytest.mark.parametrize("action", ["-", "''"], ids=["default", "ignored"])
def test_a_program_beside_the_screen_ignores_what_the_shell_told_it_to_ignore(
    terminal: OpenTerminal, settings: dict[str, str], tmp_path: Path, action: str
) -> None:
    plain, watched = tmp_path / "plain", tmp_path / "watched"
    ignored = "grep ^SigIgn: /proc/self/status"
    line = f"{sys.executable} -m stallscope watch --output {watched} {ignored}"
    script = tmp_path / "script"
    script.write_text(f"trap {action} PIPE XFSZ USR1; {ignored} > {plain}; {line}; exit\n")
    shell = terminal(shell=True, size=SIZE, **settings)
    # Its module subprocess resets what this process ignores.
    start_it = f"import subprocess; subprocess.run(['sh', '{script}'])"
    shell.press(f'{sys.executable} -c "{start_it}"; exit\r')
    shell.wait_for("ENDED, exit code 0")
    shell.press("q")
    assert shell.wait_for_end() == 0
    assert without_the_c_librarys_own(watched) == without_the_c_librarys_own(plain)


def without_the_c_librarys_own(status: Path) -> int:
    return int(status.read_text().split()[1], 16) & ~(3 << 31)


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [("/no/such", 127, "the program /no/such was not found"), ("/etc/passwd", 126, "/etc/passwd cannot be executed")],
)
def test_a_program_that_cannot_be_started_opens_no_screen(
    terminal: OpenTerminal, settings: dict[str, str], program: str, code: int, said: str
) -> None:
    screen = watching(terminal, settings, program)
    assert screen.wait_for_end() == code
    assert said in screen.text()
    assert "output of the program" not in screen.text()
    assert folders(settings) == []


def test_a_folder_is_recorded_and_traced_too(
    settings: dict[str, str], stand_in: StandIn, tmp_path: Path, stallscope_command: Command
) -> None:
    folder, record, trace = tmp_path / "folder", tmp_path / "a.rec", tmp_path / "trace.json"
    assert stand_in.run(folder, "behind-kernel").returncode == 0
    done = stallscope_command("watch", "--attach", str(folder), "--record", str(record), "--trace", str(trace))
    assert done.returncode == 0
    assert "Time lost by cause" in done.stdout
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {"call", "gpu"}
    again = json.loads(stallscope_command("replay", str(record), "--json").stdout)
    assert (again["program"], again["processes"][0]["name"]) == (None, "host")
    # A busy machine may make a short call slow too.
    waited = ("cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
    slow = [call["cause"] for call in again["processes"][0]["slow_calls"] if call["function"] in waited]
    assert slow == ["gpu-work", "gpu-work"]
    traces = tmp_path / "traces.json"
    assert stallscope_command("replay", str(record), "--trace", str(traces)).returncode == 0
    assert json.loads(traces.read_text(encoding="utf-8"))["otherData"]["watched"] == str(folder)


def moments_in(record: Path) -> int:
    """How many moments a recording has that is being written."""
    try:
        with closing(WatchRecording(record)) as recording:
            return len(recording)
    except RecordingError:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "ended"])
def test_a_folder_is_recorded_until_its_programs_end_or_a_signal(
    number: signal.Signals, settings: dict[str, str], stand_in: StandIn, tmp_path: Path
) -> None:
    folder, record = tmp_path / "folder", tmp_path / "a.rec"
    folder.mkdir(mode=0o700)
    with stand_in.start(folder, "hang") as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "hung\n"
            with start("watch", "--attach", str(folder), "--record", str(record), env=settings) as attached:
                wait_until(lambda: moments_in(record), "a moment is recorded")
                (attached if number == signal.SIGINT else program).send_signal(number)
                out, err = attached.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert attached.returncode == 0
    assert err == (
        f"stallscope: recording host (pid {program.pid}) until its end; ctrl+c ends the recording\n"
        f"stallscope: recorded to {record}; stallscope replay shows it\n"
    )
    assert "cuMemcpyDtoHAsync_v2 in hung" in out
    assert moments_in(record) >= 2
    with closing(WatchRecording(record)) as recording:
        assert not recording.cut_off
        (process,) = recording.last().moment.findings.processes
    assert process.ended == (number == signal.SIGKILL)


def test_what_was_recorded_of_a_folder_is_kept_where_the_folder_is_removed(
    settings: dict[str, str], stand_in: StandIn, tmp_path: Path
) -> None:
    folder, record = tmp_path / "folder", tmp_path / "a.rec"
    folder.mkdir(mode=0o700)
    with stand_in.start(folder, "hang") as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "hung\n"
            with start("watch", "--attach", str(folder), "--record", str(record), env=settings) as attached:
                wait_until(lambda: moments_in(record), "a moment is recorded")
                shutil.rmtree(folder)
                _, err = attached.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert attached.returncode == 125
    assert err.endswith(f"stallscope: {folder} cannot be read: No such file or directory\n")
    assert moments_in(record) >= 1


def test_a_screen_that_fails_leaves_the_program_running(
    terminal: OpenTerminal, settings: dict[str, str], script: str, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(
        "from stallscope.tui.watch.screen import WatchScreen\nWatchScreen.action_pause = lambda self: {}[1]\n"
    )
    paths = os.pathsep.join((str(planted), *ROOTS))
    screen = watching(
        terminal, settings | {"PYTHONPATH": paths, "XDG_STATE_HOME": str(tmp_path)}, sys.executable, script
    )
    screen.wait_for("ready")
    since = screen.press("p")
    screen.wait_for("continues without the screen", since=since)
    assert "the screen failed (KeyError: 1)" in screen.text(since)
    (program,) = processes.children(screen.pid)
    os.kill(program, signal.SIGTERM)
    assert screen.wait_for_end() == 40 + signal.SIGTERM


def test_ctrl_c_after_the_screen_reaches_a_program_that_ignored_the_first(
    terminal: OpenTerminal, settings: dict[str, str], tmp_path: Path
) -> None:
    file, ignored = tmp_path / "stubborn.py", tmp_path / "ignored"
    # Two signals that arrive before the program waits for the first would be one.
    file.write_text(
        "import os, pathlib, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "print('ready', flush=True)\nsignal.sigwait({signal.SIGINT})\npathlib.Path(sys.argv[1]).touch()\n"
        "signal.sigwait({signal.SIGINT})\nos._exit(9)\n"
    )
    screen = watching(terminal, settings, sys.executable, str(file), str(ignored))
    screen.wait_for("ready")
    since = screen.press("\x03")
    screen.wait_for("End it?", since=since)
    since = screen.press("y")
    screen.wait_for("waiting for its end", since=since)
    screen.wait_until(ignored.exists, "the first signal has reached the program")
    screen.press("\x03")
    assert screen.wait_for_end() == 9
