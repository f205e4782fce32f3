"""``stallscope watch`` of programs beside the stand-ins: exit codes, signals, report, and what cannot be recorded."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from factories import processes, prometheus_text
from factories.command_line import ROOTS, TIMEOUT_S, Command, Process, command, environment, start
from factories.documents import validate
from factories.forked_processes import ForkedProcess
from factories.stand_in import StandIn
from factories.terminal import OpenTerminal
from stallprobes.errors import NativeLibraryError
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE, FOLDER_VARIABLE
from stallprobes.native.library import injected_library
from stallprobes.native.sources import LIBRARIES
from stallprobes.watch import environment as watch_environment
from stallprobes.watch.environment import INJECTION_VARIABLE
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.recorder import MOST_WORDS
from stallprobes.watch.live.recording import WatchRecording
from stallprobes.watch.reading.folder import create_folder
from stallscope.cli import main as cli
from stallscope.cli.watching import session

# What it prints, and its exit code.
PROGRAM = ("sh", "-c", "echo out; echo err >&2; exit 7")
# Prints the numbers of the signals that it gets, until it is killed or gets SIGUSR2.
# It waits for a signal by sigwait: one that arrives just before signal.pause() is handled only at the next.
COUNTER = """\
import os, signal
numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
os.write(1, b"ready\\n")
while (number := signal.sigwait(numbers)) != signal.SIGUSR2:
    os.write(1, f"got {number}\\n".encode())
os._exit(3)
"""

Watch = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    # Paths of tests are long, and reports break lines at the terminal's width.
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def watch(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Watch:
    """Runs the command in this process: exit code, and all that it and the program wrote."""
    monkeypatch.delenv(INJECTION_VARIABLE, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["watch", *arguments])
        out, err = capfd.readouterr()
        assert list(Path(settings["XDG_RUNTIME_DIR"]).iterdir()) == []
        return int(ended.value.code or 0), out, err

    return run


def read(path: Path) -> dict[str, Any]:
    """The document in ``path``, which follows its schema."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    validate(document, "stallscope.watch/3")
    return document


def test_the_program_has_its_streams_and_its_exit_code(watch: Watch) -> None:
    code, out, err = watch(*PROGRAM)
    assert (code, out) == (7, "out\n")
    lines = err.splitlines()
    # It names the program's number, so the program may write first.
    (announced,) = (line for line in lines if line.startswith("stallscope: watching sh (pid "))
    assert " without a screen: stdout is no terminal; " in announced
    assert "a profiler of its own finds CUPTI taken unless --yield-to-profiler is given" in announced
    assert "err" in lines
    assert "No process recorded a CUDA call while it was watched." in lines


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("kill -TERM $$", 143, False),
        ("kill -INT $$", 130, False),
        ("kill -SEGV $$", 139, True),
        ("kill -KILL $$", 137, True),
        ("exit 255", 255, False),
    ],
)
def test_a_program_that_a_signal_ended_exits_as_in_a_shell(watch: Watch, script: str, code: int, said: bool) -> None:
    found, _, err = watch("--", "sh", "-c", script)
    assert found == code
    assert ("was ended by signal" in err) == said


def test_a_program_starts_with_the_signals_of_any_other(watch: Watch) -> None:
    line = ("grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status")
    plain = subprocess.run(line, capture_output=True, text=True, check=True, restore_signals=True)
    code, out, _ = watch(*line)
    assert (code, numbers_in(out)) == (0, numbers_in(plain.stdout))


IGNORED = ("grep", "^SigIgn:", "/proc/self/status")
# What a shell is told to ignore before it starts a program.
TRAPS = {"nothing": "", "SIGPIPE": "trap '' PIPE; ", "SIGXFSZ": "trap '' XFSZ; ", "both": "trap '' PIPE XFSZ; "}


def ignored_by_a_program(traps: str, line: Sequence[str], env: dict[str, str]) -> dict[str, int]:
    """What ``line`` ignores, which prints that, where a shell with ``traps`` starts it and waits for its end."""
    script = f"{traps}{shlex.join(line)}; exit $?"
    # Without what Python ignores in this process.
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=env, check=True)
    return numbers_in(done.stdout)


@pytest.mark.parametrize("traps", TRAPS.values(), ids=TRAPS)
def test_a_program_ignores_what_the_shell_told_it_to_ignore(settings: dict[str, str], traps: str) -> None:
    variables = environment(**settings)
    plain = ignored_by_a_program(traps, IGNORED, variables)
    assert ignored_by_a_program(traps, [*command(None, "watch", *IGNORED)], variables) == plain


def test_a_program_whose_reader_ends_is_ended_by_sigpipe_as_without_watch(settings: dict[str, str]) -> None:
    line = shlex.join(command(None, "watch", "sh", "-c", "yes; exit 3"))
    script = f"( {line}; echo $? >&2 ) | head -n 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment(**settings))
    # ``yes`` is ended, and says nothing.
    assert done.stdout == "y\n"
    assert done.stderr.splitlines()[-1] == "3"
    assert "Broken pipe" not in done.stderr


def numbers_in(status: str) -> dict[str, int]:
    """The sets of signals in lines of /proc/PID/status, without 32 and 33, which are the C library's own."""
    pairs = (line.split() for line in status.splitlines())
    return {name: int(value, 16) & ~(3 << 31) for name, value in pairs}


def test_a_program_that_cannot_be_started(watch: Watch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("exit 5\n")
    assert watch("/no/such") == (127, "", "stallscope: the program /no/such was not found\n")
    code, _, err = watch("no-such-program")
    assert (code, err) == (127, "stallscope: the program no-such-program was not found in the folders of PATH\n")
    assert watch("")[::2] == (127, "stallscope: the program (an empty name) was not found in the folders of PATH\n")
    assert watch(str(file))[::2] == (126, f"stallscope: {file} cannot be executed: Permission denied\n")
    # A script without a first line that names a shell, as in a shell.
    file.chmod(0o755)
    assert watch(str(file))[0] == 5
    file.write_text("#!/no/such\n")
    assert watch(str(file))[::2] == (126, f"stallscope: {file} cannot be executed: its interpreter does not exist\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--slow", "5"), "PROGRAM... is missing: --slow is for the report of a program"),
        (("--trace", "new"), "PROGRAM... is missing: --trace is for the report of a program"),
        (("--headless", "--json", "new"), "--json is for the report of a program; without FILE it is for the list"),
        (("--output", "o"), "--output is for a program that watch starts, and PROGRAM... is missing"),
        (("--json", "--", "true"), "--json needs a file; stdout belongs to the program"),
        (("--slow", "0", "true"), '--slow: "0" is not a number of microseconds from 1 to 3600000000'),
        (("--slow", "fast", "true"), '--slow: "fast" is not a number of microseconds from 1 to 3600000000'),
        (("--fast", "true"), "there is no option --fast"),
        (("--print-env", "true"), "--print-env starts nothing, so it takes no PROGRAM"),
        (("--attach", "folder", "true"), "--attach starts nothing, so it takes no PROGRAM"),
        (("--attach", "folder", "--print-env"), "--attach and --print-env exclude each other"),
        (("--attach", "folder", "--slow", "5"), "--slow is for the recording, which --attach only reads; give it to "),
        (("--print-env", "--json", "new.json"), "--json is for the report; give it to --attach"),
        (("--print-env", "--prometheus", "new.prom"), "--prometheus is for the report; give it to --attach"),
        (("--prometheus", "-", "true"), "--prometheus needs a file; stdout belongs to the program"),
        (("--json", "-", "true"), "--json needs a file; stdout belongs to the program"),
        (("--trace", "-", "true"), "--trace needs a file; stdout belongs to the program"),
        (("--record", "-", "true"), "--record needs a file; a recording cannot be written to stdout"),
        (("--print-env", "--record", "new.rec"), "--record is for the report; give it to --attach"),
        (("--print-env", "--headless"), "--headless is for a program that watch starts; --print-env starts nothing"),
        (
            ("--attach", "folder", "--output", "o"),
            "--output is for a program that watch starts; --attach",
        ),
        (("--output", "o", "true"), "--output is for the screen, and stdout is no terminal"),
        (("--headless", "--output", "o", "true"), "--output is for the screen; with --headless redirect the program's"),
        (
            ("--json", "new", "--trace", "./new", "true"),
            "--json and --trace name the same file new; use different files",
        ),
        (("--json", "new", "--record", "new", "true"), "--json and --record name the same file new; use different"),
        (("--attach", "folder", "--json", "-"), "--json needs a file; the text goes to stdout"),
        (("--beside", "spinning", "true"), '--beside: "spinning" is not all, nor one of: spin, h2d-pinned-large, '),
        (("--attach", "folder", "--beside", "spin"), "--beside is for a program that watch starts, or --pid"),
        (("--print-env", "--allow-shared"), "--allow-shared is for a program that watch starts, or --pid"),
        (("--beside", "spin"), "--beside is for a program that watch starts, or --pid"),
        (("--beside", "spin", "--save", "a.runs", "true"), "--save is for runs to compare; with --beside, aggressors"),
        (("--beside", "all", "--calls-only", "true"), "--beside needs records of the GPU's work: leave out --calls-on"),
        (("--attach", "/no/such"), "/no/such cannot be read: No such file or directory"),
    ],
)
def test_wrong_arguments_get_a_sentence_and_exit_125(watch: Watch, arguments: tuple[str, ...], problem: str) -> None:
    code, out, err = watch(*arguments)
    assert (code, out, len(err.splitlines())) == (125, "", 1)
    assert problem in err


def test_a_file_that_exists_is_refused_before_the_program_starts(watch: Watch, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("kept")
    code, out, err = watch("--json", str(file), *PROGRAM)
    assert (code, out, file.read_text()) == (125, "", "kept")
    assert err == f"stallscope: --json: {file} already exists: name another file, or overwrite it with --force\n"
    assert watch("--json", str(file), "--force", *PROGRAM)[0] == 7
    assert read(file)["exit_code"] == 7


@pytest.mark.parametrize(("own", "code"), [(0, 125), (7, 7)])
def test_a_report_that_cannot_be_written_is_no_success(watch: Watch, tmp_path: Path, own: int, code: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "a.json"
    found, _, err = watch("--json", str(file), "sh", "-c", f"rmdir {folder}; exit {own}")
    assert found == code
    assert err.endswith(f"{file} cannot be written: the folder {folder} does not exist\n")


def test_a_file_that_cannot_be_written_does_not_cost_the_others(
    watch: Watch, stand_in: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    report, trace, record = folder / "a.json", tmp_path / "trace.json", tmp_path / "a.rec"
    files = ("--json", str(report), "--trace", str(trace), "--record", str(record))
    code, _, err = watch(*files, "sh", "-c", f"{stand_in.folder / 'host'} copies; rmdir {folder}")
    assert code == 125
    assert f"{report} cannot be written: the folder {folder} does not exist\n" in err
    assert "cuMemcpyDtoH_v2" in trace.read_text(encoding="utf-8")
    with closing(WatchRecording(record)) as recording:
        assert recording.last().moment.program.exit_code == 0


def test_calls_are_reported_as_text_and_json(watch: Watch, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    code, out, err = watch("--json", str(file), "--slow", "1500", "--full", str(stand_in.folder / "host"), "copies")
    assert (code, out) == (0, "")
    assert "cuMemcpyDtoHAsync_v2 of 4 KiB in host" in err
    document = read(file)
    assert document["program"] == [str(stand_in.folder / "host"), "copies"]
    assert (document["exit_code"], document["problems"]) == (0, [])
    (process,) = document["processes"]
    assert (process["state"], process["slow_limit_ns"], process["calls"]) == ("recording", 1_500_000, 15)
    slow = [(call["function"], call["bytes"], call["source"], call["target"]) for call in process["slow_calls"]]
    # A busy machine may make a short call slow.
    assert [one for one in slow if one[0] == "cuMemcpyDtoHAsync_v2"] == [
        ("cuMemcpyDtoHAsync_v2", 4096, "device", "pageable"),
        ("cuMemcpyDtoHAsync_v2", 96, "device", "pinned"),
    ]
    (thread,) = process["threads"]
    assert {row["function"]: row["calls"] for row in thread["rows"]}["cuMemcpyHtoDAsync_v2"] == 2


def test_metrics_are_written_while_the_program_runs_and_at_its_end(
    watch: Watch, stand_in: StandIn, tmp_path: Path
) -> None:
    file, seen = tmp_path / "solver.prom", tmp_path / "seen"
    # The program ends once it has seen metrics with its process in them.
    script = (
        f"{stand_in.folder / 'host'} copies; until grep -q process_info {file}; do sleep 0.1; done; cp {file} {seen}"
    )
    assert watch("--prometheus", str(file), "sh", "-c", script)[0] == 0
    first, last = (prometheus_text.read(path.read_text(encoding="utf-8")) for path in (seen, file))
    for series in first, last:
        assert prometheus_text.only(series, "stallscope_watch_process_info", watch="solver", program="host") == 1
    assert prometheus_text.only(last, "stallscope_watch_process_running", watch="solver", process="0") == 0
    assert first.keys() <= last.keys() | {series for series in first if "info" in series[0]}
    # The file of an earlier run may be replaced without --force, another one not.
    assert watch("--prometheus", str(file), *PROGRAM)[0] == 7
    series = prometheus_text.read(file.read_text(encoding="utf-8"))
    assert prometheus_text.only(series, "stallscope_watch_processes", watch="solver") == 0
    file.write_text("not of stallscope", encoding="utf-8")
    code, _, err = watch("--prometheus", str(file), *PROGRAM)
    assert (code, "already exists" in err, file.read_text(encoding="utf-8")) == (125, True, "not of stallscope")


def test_a_program_without_a_slow_call_has_no_stall(watch: Watch, stand_in: StandIn) -> None:
    # The limit is far above any call of the stand-in, also on a busy machine.
    code, _, err = watch("--slow", "3e9", "--calls-only", str(stand_in.folder / "host"), "threads", "2", "10")
    assert code == 0
    assert "No stall: no finished call took 3000 s or longer." in err


def test_the_processes_of_a_program_are_all_reported(watch: Watch, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    code, _, err = watch("--json", str(file), str(stand_in.folder / "host"), "fork")
    assert code == 0
    assert " · 2 processes · " in err
    assert len(read(file)["processes"]) == 2


def test_without_its_library_the_program_runs_and_the_reason_is_said(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def injected_library() -> Path:
        raise NativeLibraryError("the native library /lib/a.so is damaged; reinstall stallscope.")

    monkeypatch.setattr(watch_environment, "injected_library", injected_library)
    file = tmp_path / "a.json"
    code, out, err = watch("--json", str(file), *PROGRAM)
    assert (code, out) == (7, "out\n")
    reason = "the native library /lib/a.so is damaged; reinstall stallscope"
    assert err.splitlines().count(f"stallscope: sh runs, but nothing is recorded: {reason}") == 1
    assert read(file)["problems"] == [f"Nothing was recorded: {reason}."]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({CUPTI_VARIABLE: "/no/such/libcupti.so"}, "libcupti was not found, so nothing was recorded; install it: "),
        ({"STAND_IN_SUBSCRIBE": "39"}, "another tool uses CUPTI in it, so nothing was recorded; run it without nsys"),
        (
            {"STAND_IN_SUBSCRIBE": "35"},
            "CUPTI cannot be used in it, so nothing was recorded (cuptiSubscribe returned 35)",
        ),
        ({"STAND_IN_VERSION": "17"}, "its libcupti is older than that of CUDA 12.0, so nothing was recorded"),
    ],
)
def test_a_program_without_a_usable_cupti_runs_and_the_reason_is_said(
    watch: Watch, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], words: str
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    code, out, err = watch(str(stand_in.folder / "host"), "output")
    assert (code, out) == (0, "only this\n")
    assert words in err


def test_its_own_profiler_finds_cupti_taken_unless_the_watch_yields(watch: Watch, stand_in: StandIn) -> None:
    profiler = str(stand_in.folder / "profiler")
    assert watch(profiler)[1].splitlines()[0] == "39"
    code, out, err = watch("--yield-to-profiler", profiler)
    assert (code, out.splitlines()[0]) == (0, "0")
    assert "a profiler of its own gets CUPTI, and from then on nothing is recorded" in err
    assert "nothing was recorded since its own profiler began" in err


def test_another_tools_injection_is_not_replaced(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INJECTION_VARIABLE, "/opt/nsys.so")
    code, out, err = watch(*PROGRAM)
    assert (code, out, len(err.splitlines())) == (125, "", 1)
    assert "CUDA_INJECTION64_PATH names another tool's library (/opt/nsys.so)" in err


def test_a_program_that_is_watched_already_is_refused(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(INJECTION_VARIABLE, "/inject.so")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    code, out, err = watch(*PROGRAM)
    assert (code, out, len(err.splitlines())) == (125, "", 1)
    assert f"the program is watched already, as STALLSCOPE_WATCH_FOLDER says ({tmp_path})" in err


def test_programs_that_are_started_elsewhere(
    watch: Watch, stand_in: StandIn, settings: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["watch", "--print-env", "--slow", "1500", "--calls-only"])
    exports, err = capfd.readouterr()
    assert not ended.value.code
    (folder,) = Path(settings["TMPDIR"]).iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert err == f"stallscope: report what they write by: stallscope watch --attach {folder}\n"
    host = shlex.quote(str(stand_in.folder / "host"))
    subprocess.run(["sh", "-c", f"{exports}{host} copies"], check=True)
    file = tmp_path / "a.json"
    program = subprocess.Popen(["sh", "-c", f"{exports}exec {host} hang"], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "hung\n"
        with pytest.raises(SystemExit) as ended:
            cli.main(["watch", "--attach", str(folder), "--json", str(file)])
    finally:
        program.kill()
        program.communicate()
    report, err = capfd.readouterr()
    assert (ended.value.code or 0, err) == (0, "")
    # The folder's name may fill the first line.
    assert " ".join(report.split()).startswith(f"{folder} · 2 processes · ")
    assert "cuMemcpyDtoHAsync_v2 in hung" in report
    document = read(file)
    assert (document["program"], document["exit_code"]) == (None, None)
    assert [process["slow_limit_ns"] for process in document["processes"]] == [1_500_000, 1_500_000]


def test_a_folder_that_others_can_read_is_refused(watch: Watch, tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    folder.chmod(0o755)
    code, _, err = watch("--attach", str(folder))
    refused = f"stallscope: {folder} can be used by others: name a folder that `stallscope watch --print-env` made\n"
    assert (code, err) == (125, refused)


@pytest.fixture
def counting(settings: dict[str, str]) -> Iterator[Process]:
    """The command with COUNTER, in a process group of its own."""
    process: Process = ForkedProcess(
        command(None, "watch", sys.executable, "-c", COUNTER),
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        ended = process.poll()
        for pid in (*processes.children(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # If a test waited in vain, the report shows whether the command had ended, and why.
        sys.stdout.write(f"exit code {ended}, stderr: {process.communicate()[1]}\n")


def test_a_signal_reaches_the_program_once(counting: Process) -> None:
    out = counting.stdout
    assert out is not None
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in (*numbers, *numbers):
        counting.send_signal(number)
        assert out.readline() == f"got {number}\n"
        # The group has the program too, which must not get it twice.
        os.killpg(counting.pid, number)
        assert out.readline() == f"got {number}\n"
    counting.send_signal(signal.SIGUSR2)
    rest, err = counting.communicate(timeout=TIMEOUT_S)
    assert (counting.returncode, rest) == (3, "")
    assert err.count("No process recorded a CUDA call") == 1


def test_ctrl_c_ends_a_program_that_ignores_ctrl_z(terminal: OpenTerminal, settings: dict[str, str]) -> None:
    script = "trap '' TSTP; trap 'echo got 2; exit 5' INT; echo rea''dy; while :; do sleep 0.05; done"
    shell = terminal(shell=True, **settings)
    shell.wait_for("$ ")
    since = shell.press(f"{sys.executable} -m stallscope watch --headless sh -c {shlex.quote(script)}; echo code=$?\n")
    shell.wait_for("ready", since=since)
    shell.wait_for("stallscope: watching", since=since)
    since = shell.press("\x1a")
    shell.wait_for("^Z", since=since)
    since = shell.press("\x03")
    shell.wait_for("code=5", since=since)


def test_sigusr1_prints_the_report_so_far(settings: dict[str, str], stand_in: StandIn) -> None:
    with start("watch", str(stand_in.folder / "host"), "hang", env=settings) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "hung\n"
        process.send_signal(signal.SIGUSR1)
        lines: list[str] = []
        while not any("has not returned for" in line for line in lines):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        process.terminate()
        _, rest = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143
    assert "It had not when the process ended." in " ".join(rest.split())


def test_a_killed_watch_leaves_the_program_alone(counting: Process) -> None:
    (program,) = [pid for pid in processes.children(counting.pid) if is_program(pid)]
    counting.kill()
    assert counting.stdout is not None
    os.kill(program, signal.SIGTERM)
    assert counting.stdout.readline() == "got 15\n"
    os.kill(program, signal.SIGUSR2)
    processes.wait_for_end(program)


def is_program(pid: int) -> bool:
    """Whether a process runs COUNTER."""
    return b"signal.sigwait" in Path(f"/proc/{pid}/cmdline").read_bytes()


def states(*pids: int) -> set[str]:
    """The states of processes: ``T`` if one is stopped."""
    lines = (Path(f"/proc/{pid}/stat").read_text() for pid in pids)
    return {line.rpartition(")")[2].split()[0] for line in lines}


def test_a_watched_program_is_a_job_of_the_shell(
    terminal: OpenTerminal, settings: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    shell = terminal(shell=True, **settings)
    shell.wait_for("$ ")
    since = shell.press(f"{sys.executable} -m stallscope watch --headless {sys.executable} {script}\n")
    shell.wait_for("ready", since=since)
    (watch,) = processes.children(shell.pid)
    # Also before its announcement the program may print.
    shell.wait_for("watching", since=since)
    (program,) = [pid for pid in processes.children(watch) if str(script).encode() in cmdline(pid)]
    for _ in range(2):
        since = shell.press("\x03")
        shell.wait_for("got 2", since=since)
        since = shell.press("\x1a")
        shell.wait_for("Stopped", since=since)
        shell.wait_until(lambda: states(watch, program) == {"T"}, "both are stopped")
        since = shell.press("fg; echo code=$?\n")
        shell.wait_until(lambda: "T" not in states(watch, program), "both continue")
    os.kill(program, signal.SIGUSR2)
    shell.wait_for("code=3", since=since)
    # No signal came twice.
    assert shell.text().count("got 2") == 2


def test_a_program_that_reads_the_terminal_has_it_and_a_suspension_keeps_that(
    terminal: OpenTerminal, settings: dict[str, str]
) -> None:
    script = "trap 'echo g''ot 2' INT; for n in 1 2 3; do read line && echo read=$line; done; exit 6"
    shell = terminal(shell=True, **settings)
    shell.wait_for("$ ")
    since = shell.press(f"{sys.executable} -m stallscope watch --headless bash -c {shlex.quote(script)}\n")
    shell.wait_for("watching", since=since)
    since = shell.press("a\n")
    shell.wait_for("read=a", since=since)
    since = shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    since = shell.press("fg; echo code=$?\n")
    shell.wait_for("--headless", since=since)
    since = shell.press("b\n")
    shell.wait_for("read=b", since=since)
    since = shell.press("\x03")
    shell.wait_for("got 2", since=since)
    since = shell.press("c\n")
    shell.wait_for("code=6", since=since)
    # The shell has the terminal again.
    since = shell.press("echo sh''ell\n")
    shell.wait_for("shell", since=since)


def test_another_process_of_the_job_reads_the_terminal(terminal: OpenTerminal, settings: dict[str, str]) -> None:
    shell = terminal(shell=True, **settings)
    shell.wait_for("$ ")
    program = f"{sys.executable} -m stallscope watch --headless yes from-program"
    since = shell.press(f"{program} | sh -c 'read x; read y < /dev/tty; echo $x and $y'\n")
    shell.wait_for("watching", since=since)
    since = shell.press("key\n")
    shell.wait_for("from-program and key", since=since)


def cmdline(pid: int) -> bytes:
    """The words of a process's command."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_report_names_the_places_that_make_slow_calls(watch: Watch, stand_in: StandIn, tmp_path: Path) -> None:
    saved = tmp_path / "calls.json"
    code, _, err = watch("--json", str(saved), "--", str(stand_in.folder / "host"), "steps", "4")
    assert code == 0
    assert "Slow calls by place in the program\n" in err
    assert "4 blocking 4-byte copies from read_loss in host (cuMemcpyDtoHAsync_v2): " in err
    (process,) = read(saved)["processes"]
    # A busy machine may make a short call slow too.
    (site,) = (one for one in process["sites"] if one["function"] == "cuMemcpyDtoHAsync_v2")
    assert (site["calls"], site["place"]["function"], site["cause"]) == (4, "read_loss", "unattributed")
    copy = next(one for one in process["slow_calls"] if one["function"] == "cuMemcpyDtoHAsync_v2")
    stack = process["stacks"][copy["stack"]]
    assert [frame["function"] for frame in stack["native"] if frame["file"].endswith("/host")][:2] == [
        "read_loss", "train_step"
    ]  # fmt: skip


def test_stacks_can_be_left_out(watch: Watch, stand_in: StandIn, tmp_path: Path) -> None:
    saved = tmp_path / "calls.json"
    watch("--no-stacks", "--json", str(saved), "--", str(stand_in.folder / "host"), "steps", "4")
    (process,) = read(saved)["processes"]
    assert (process["sites"], process["stacks"]) == ([], [])
    assert {call["stack"] for call in process["slow_calls"]} == {None}


def test_a_check_that_cannot_be_read_is_refused_before_the_program_starts(watch: Watch, tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    code, out, err = watch("--matrix", str(missing), "--", "echo", "started")
    assert (code, out) == (125, "")
    assert err.startswith(f"stallscope: {missing} cannot be read: ")


def test_a_check_is_not_for_print_env(watch: Watch, tmp_path: Path) -> None:
    code, _, err = watch("--print-env", "--matrix", str(tmp_path / "check.json"))
    assert code == 125
    assert "--matrix is for the report; give it to --attach" in err


def test_a_process_that_outlives_the_program_is_named(
    watch: Watch, stand_in: StandIn, tmp_path: Path, stallscope_command: Command
) -> None:
    saved, written, record = tmp_path / "calls.json", tmp_path / "written", tmp_path / "a.rec"
    script = f"{stand_in.folder / 'host'} hang > {written} & until grep -q hung {written}; do sleep 0.02; done"
    code, _, err = watch("--json", str(saved), "--record", str(record), "--", "sh", "-c", script)
    document = read(saved)
    (process,) = document["processes"]
    os.kill(process["pid"], signal.SIGKILL)
    assert code == 0
    sentence = f"host (pid {process['pid']}) still runs: it was recorded until the end of the program that started it."
    assert sentence in err
    assert sentence in document["problems"]
    assert process["ended"] is False
    assert sentence in json.loads(stallscope_command("replay", str(record), "--json").stdout)["problems"]


# A signal of each kind comes while the report is printed.
INTERRUPTING = """\
import os, signal
# Threads that numpy starts block the signals, as where the command imports it.
before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
from stallscope.cli.watching.session import ProgramWatch
signal.pthread_sigmask(signal.SIG_SETMASK, before)
report = ProgramWatch._print
def interrupted(*arguments):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        os.kill(os.getpid(), number)
    report(*arguments)
ProgramWatch._print = interrupted
"""


def planted(folder: Path, code: str) -> dict[str, str]:
    """Variables with which an interpreter runs ``code`` at its start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join((str(folder), *ROOTS))}


def test_signals_during_the_report_cost_nothing(
    settings: dict[str, str], tmp_path: Path, stallscope_command: Command
) -> None:
    saved = tmp_path / "calls.json"
    variables = settings | planted(tmp_path / "planted", INTERRUPTING)
    done = stallscope_command("watch", "--json", str(saved), *PROGRAM, env=variables)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.count("No process recorded a CUDA call while it was watched.") == 1
    assert read(saved)["exit_code"] == 7
    assert os.listdir(settings["XDG_RUNTIME_DIR"]) == []


def test_a_parent_that_ignores_ends_of_children_hides_no_exit_code(settings: dict[str, str]) -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    line = [sys.executable, "-c", ignoring, *command(None, "watch", *PROGRAM)]
    done = subprocess.run(line, env=environment(**settings), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "Traceback" not in done.stderr


def test_a_program_has_the_locale_of_the_user(settings: dict[str, str], stallscope_command: Command) -> None:
    script = "echo ${LC_CTYPE-none}"
    plain = settings | {"LANG": "C", "PYTHONCOERCECLOCALE": "1"}
    done = stallscope_command("watch", "sh", "-c", script, env=plain, own_interpreter=True)
    assert (done.returncode, done.stdout) == (0, "none\n")
    chosen = stallscope_command("watch", "sh", "-c", script, env=plain | {"LC_CTYPE": "C.UTF-8"}, own_interpreter=True)
    assert (chosen.returncode, chosen.stdout) == (0, "C.UTF-8\n")


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_the_file_of_stdout_is_not_replaced(settings: dict[str, str], tmp_path: Path, option: str) -> None:
    file = tmp_path / "out"
    with file.open("w") as stdout:
        process = start("watch", option, str(file), "--force", *PROGRAM, env=settings, stdout=stdout)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, file.read_text()) == (125, "")
    assert err == f"stallscope: {option} needs another file than stdout or stderr; stdout belongs to the program\n"


def test_a_defect_of_the_watch_has_its_own_exit_code(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(session, "run", fail)
    code, out, err = watch(*PROGRAM)
    assert (code, out) == (125, "")
    assert "KeyError: 'a defect'" in err
    assert err.splitlines()[-1] == "stallscope: watch failed, as shown above"


def test_memory_that_is_too_little_is_no_defect(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has no text of its own."""

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(session, "run", fail)
    code, out, err = watch(*PROGRAM)
    assert (code, out) == (125, "")
    assert err.startswith("stallscope: too little memory")
    assert len(err.splitlines()) == 1


def test_a_reading_for_which_memory_is_too_little_is_a_sentence(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(LiveProgram, "findings", fail)
    code, _, err = watch(*PROGRAM)
    assert code == 7
    assert err.splitlines()[-1].startswith("stallscope: too little memory")
    assert "Traceback" not in err


def test_a_program_runs_also_where_no_library_can_be_executed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def no_execution(path: Path) -> os.statvfs_result:
        fields = list(real(path))
        fields[8] |= os.ST_NOEXEC
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", no_execution)
    code, out, err = watch(*PROGRAM)
    assert (code, out) == (7, "out\n")
    reason = f"nothing can be executed in {LIBRARIES} (noexec): install stallscope elsewhere"
    assert f"stallscope: sh runs, but nothing is recorded: {reason}\n" in err


def test_a_program_without_room_for_its_file_is_named(watch: Watch, stand_in: StandIn, tmp_path: Path) -> None:
    saved = tmp_path / "calls.json"
    line = f"ulimit -f 1000; echo $$; exec {shlex.quote(str(stand_in.folder / 'host'))} copies"
    code, out, err = watch("--json", str(saved), "sh", "-c", line)
    assert code == 0
    words = f"Process {out.splitlines()[0]} has 500 KiB as its limit of file sizes (ulimit -f), and recording takes "
    assert words in " ".join(err.split())
    assert "so nothing of it is recorded" in read(saved)["problems"][0]


def test_a_folder_with_a_colon_cannot_be_preloaded_from(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "a:b"
    other.mkdir()
    monkeypatch.setattr(watch_environment, "injected_library", lambda: Path(shutil.copy(injected_library(), other)))
    code, out, err = watch("--yield-to-profiler", *PROGRAM)
    assert (code, out) == (125, "")
    assert "--yield-to-profiler needs LD_PRELOAD, which takes no path with a space or colon" in err
    assert watch(*PROGRAM)[0] == 7


def test_more_words_than_a_recording_keeps(watch: Watch, tmp_path: Path) -> None:
    record = tmp_path / "a.rec"
    words = map(str, range(MOST_WORDS + 1))
    assert watch("--record", str(record), "true", *words)[0] == 0
    with closing(WatchRecording(record)) as recording:
        assert len(recording.last().moment.program.words) == MOST_WORDS
