"""Output and exit codes of each command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from factories.command_help import COMMANDS, command
from factories.command_line import environment
from factories.documents import validate
from factories.loaded_modules import loaded_packages, running
from factories.recordings import STALL
from stallprobes import doctor
from stallprobes.catalog import entries
from stallprobes.measurement.result import RUN_SCHEMA
from stallprobes.patterns import patterns
from stallscope.cli.main import cli

if TYPE_CHECKING:
    from pathlib import Path

    from factories.command_line import Command

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_help_loads_click_and_nothing_else_that_is_installed() -> None:
    """What it takes is therefore little more than click takes; tests/benchmarks/bench_promises.py measures it."""
    click, ours = loaded_packages("import click"), loaded_packages(running("--help"))
    assert "click" in ours
    assert ours - click - set(sys.stdlib_module_names) == {"stallscope", "stallprobes"}
    assert not ours & {"asyncio", "multiprocessing", "subprocess"} - click


@pytest.mark.parametrize("arguments", [("--help",), ("list",), ("explain", "spin"), ("run", "--help")])
def test_commands_of_information_load_no_screen_compiler_or_cuda(arguments: tuple[str, ...]) -> None:
    loaded = loaded_packages(running(*arguments))
    assert "stallscope" in loaded
    assert not loaded & {"textual", "rich", "numpy", "cuda", "simpy", "pynvml"}


def test_without_a_terminal_the_screen_refers_to_the_help(stallscope_command: Command) -> None:
    done = stallscope_command()
    assert (done.returncode, done.stdout) == (2, "")
    assert "terminal" in done.stderr
    assert "stallscope --help" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_on_a_dumb_terminal_the_screen_names_the_terminal(stallscope_command: Command) -> None:
    done = stallscope_command(env={"TERM": "dumb"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "TERM=dumb" in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("--sim", "v100", "run", "launch"), ("run", "launch", "--sim", "v100")),
        (
            ("--sim-set", "timeslice_us=4000", "--sim-seed", "0", "--together", "--sim", "run", "launch"),
            ("run", "launch", "--sim", "--sim-seed", "0", "--sim-set", "timeslice_us=4000", "--together"),
        ),
        (("--sim", "list"), ("list", "--sim")),
    ],
)
def test_options_before_a_command_are_its_options(
    stallscope_command: Command, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    seconds = ("--seconds", "0.5") if "run" in before else ()
    first, second = (stallscope_command(*arguments, *seconds) for arguments in (before, after))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert "SIMULATED" in first.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpu", "0", "list"), "list has no option --gpu; see: stallscope list --help"),
        (("--sim", "settings"), "settings has no option --sim; see: stallscope settings --help"),
        (("--sim", "runn", "launch"), 'there is no profile or command "runn"; did you mean "run"?'),
        (("--sim", "v100", "runn"), 'there is no command "runn"; did you mean "run"?'),
    ],
)
def test_an_option_before_a_command_that_has_it_not_is_a_usage_error(
    stallscope_command: Command, arguments: tuple[str, ...], sentence: str
) -> None:
    done = stallscope_command(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"stallscope: {sentence}\n")


def test_help_names_every_command(stallscope_command: Command) -> None:
    text = stallscope_command("--help").stdout
    for name in (
        "list",
        "explain",
        "doctor",
        "run",
        "replay",
        "settings",
        "check",
        "compare",
        "calibrate",
        "merge",
        "show",
        "fleet",
    ):
        assert f"  {name}" in text


def test_the_readme_names_every_command_and_no_option_that_is_not_there() -> None:
    readme = (Path(__file__).parents[2] / "app" / "README.md").read_text(encoding="utf-8")
    there = {name: {option for one in command(name).params for option in one.opts} for name in ("", *COMMANDS)}
    rows = {
        found[1]: set(re.findall(r"--[a-z-]+", found[0]))
        for found in re.finditer(r"^\| `stallscope ?([a-z]*)[^`]*` \|", readme, re.MULTILINE)
    }
    assert rows.keys() == there.keys()
    for name, options in rows.items():
        assert options <= there[name], name
    section = readme[readme.index("\n## Check a machine\n") : readme.index("\n### What changed\n")]
    told = set(re.findall(r"^\| `[^|]*", section, re.MULTILINE))
    assert {option for row in told for option in re.findall(r"--[a-z-]+", row)} == there["check"] - {
        "--gpu", "--allow-shared", "--sim", "--sim-seed", "--sim-set",
    }  # fmt: skip


def test_the_printed_settings_file_can_be_loaded(stallscope_command: Command, tmp_path: Path) -> None:
    from stallscope.tui.settings import Settings, load

    file = tmp_path / "settings.toml"
    file.write_text(stallscope_command("settings").stdout, encoding="utf-8")
    assert load(file) == Settings()


def test_every_exit_code_is_in_the_help(stallscope_command: Command) -> None:
    help_ = stallscope_command("--help").stdout
    for code in ("0", "1", "2", "3", "4", "130"):
        assert f"\n    {code} " in help_


def test_list_names_every_pattern_variant_and_probe(stallscope_command: Command) -> None:
    done = stallscope_command("list")
    assert done.returncode == 0
    for pattern in patterns().values():
        assert pattern.name in done.stdout
        assert all(variant.name in done.stdout for variant in pattern.variants)
    assert all(name in done.stdout for name in entries())


@pytest.mark.parametrize("name", [*patterns(), *entries()])
def test_every_listed_name_can_be_explained(name: str) -> None:
    from click.testing import CliRunner

    from stallscope.cli.main import cli

    done = CliRunner().invoke(cli, ["explain", name], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.startswith(name)
    assert len(done.output.splitlines()) > 3


def test_a_pattern_is_explained_with_why_what_helps_and_who_reported_it(stallscope_command: Command) -> None:
    text = stallscope_command("explain", "default-stream-gate").stdout
    for title in ("What you will see", "Why", "Remedy", "Where it was reported", "Variants"):
        assert f"\n{title}\n" in text
    assert all(f"  {variant.name} (" in text for variant in patterns()["default-stream-gate"].variants)


@pytest.mark.parametrize("name", list(patterns()))
def test_an_explanation_says_nothing_twice(name: str) -> None:
    from click.testing import CliRunner

    text = " ".join(CliRunner().invoke(cli, ["explain", name], catch_exceptions=False).output.split())
    pattern = patterns()[name]
    reasons = {variant.why for variant in pattern.variants} | {pattern.why, pattern.remedy}
    assert all(text.count(reason) == 1 for reason in reasons if reason)


def test_explain_launch_says_what_the_period_does_to_the_figure(stallscope_command: Command) -> None:
    text = " ".join(stallscope_command("explain", "launch").stdout.split())
    assert "2 to 3 µs with 20 µs between calls, and 3 to 6 µs at 1 kHz" in text


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_lines_keep_within_the_width(stallscope_command: Command, width: str) -> None:
    text = stallscope_command("explain", "pageable-d2h-vs-launch", env={"COLUMNS": width}).stdout
    assert max(map(len, text.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("explain", "scalar-readbak"), "scalar-readback"),
        (("run", "secondary-contex-d2d"), "secondary-context-d2d"),
        (("run", "secondary-context-d2d", "--variant", "green-contxt"), "green-context"),
        (("docter",), "doctor"),
        (("explain", "secondary"), 'did you mean "secondary-context-d2d"?'),
        (("run", "secondary"), 'did you mean "secondary-context-d2d"?'),
        (("demo", "--pattern", "scal"), "scalar-readback"),
    ],
)
def test_an_unknown_name_proposes_the_nearest(
    stallscope_command: Command, arguments: tuple[str, ...], nearest: str
) -> None:
    done = stallscope_command(*arguments, env=NO_GPU)
    assert done.returncode == 2
    assert nearest in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        (("sh", "-c", "echo a"), "sh -c 'echo a'"),
        (("train.py", "--lr", "3"), "python train.py --lr 3"),
        (("./no/such.py",), "python ./no/such.py"),
        (("program",), "./program"),
    ],
)
def test_a_program_in_the_place_of_a_command_is_proposed_to_watch(
    stallscope_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    proposed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program").touch(0o755)
    done = stallscope_command(*arguments)
    sentence = f'there is no command "{arguments[0]}"; did you mean `stallscope watch {proposed}`?'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"stallscope: {sentence}\n")


def test_without_a_terminal_the_screens_name_what_needs_none(stallscope_command: Command, tmp_path: Path) -> None:
    missing = tmp_path / "nofile"
    for arguments, words in (
        (("replay", str(missing)), f"{missing} cannot be read: No such file or directory"),
        (
            ("replay", str(STALL)),
            "the screen needs a terminal for input and output; without one use: stallscope replay FILE --trace OUT",
        ),
        (
            ("demo", "--sim"),
            "stdout may be a file (stallscope demo > FILE); without a terminal use: stallscope run all",
        ),
    ):
        done = stallscope_command(*arguments, env={"TERM": "xterm"})
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert words in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "-inf", "1e9", "0.01", "two", ""])
def test_an_invalid_time_is_a_usage_error(stallscope_command: Command, seconds: str) -> None:
    done = stallscope_command("run", "secondary-context-d2d", "--seconds", seconds, env=NO_GPU)
    assert done.returncode == 2
    assert "--seconds" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run",), "NAME... is missing; see: stallscope run --help"),
        (("explain",), "NAME is missing; see: stallscope explain --help"),
        (("compare", "a"), "NEW is missing; see: stallscope compare --help"),
        (("record", "a", "b"), "--variant V is missing; see: stallscope record --help"),
        (
            ("record", "--sim", "a.rec", "launch", "--variant", "v"),
            'PATTERN is missing; --sim took "a.rec" for its profile: write --sim=h200 "a.rec"; '
            "see: stallscope record --help",
        ),
        (("list", "extra"), 'there is no place for the argument "extra"; see: stallscope list --help'),
        (("--nope",), "there is no option --nope; see: stallscope --help"),
        (("run", "--secon", "3"), "there is no option --secon (did you mean --seconds?); see: stallscope run --help"),
        (("run", "launch", "--seconds"), "--seconds needs a value: --seconds S; see: stallscope run --help"),
        (("run", "launch", "--json=3"), "--json takes no value; see: stallscope run --help"),
        (
            ("run", "launch", "--seconds", "two"),
            '--seconds: "two" is not a number of seconds from 0.5 to 3600; see: stallscope run --help',
        ),
        (
            ("check", "--seed", "x"),
            '--seed: "x" is not a whole number from 0 to 9223372036854775807; see: stallscope check --help',
        ),
        (
            ("--sim-seed", "-1"),
            '--sim-seed: "-1" is not a whole number from 0 to 9223372036854775807; see: stallscope --help',
        ),
        (("check", "--save", "a/"), "--save: a/ is a folder: name a file in it; see: stallscope check --help"),
        (
            ("show", "a.json", "--html", "a.html", "--html", "b.html"),
            "--html is given twice: give it once; see: stallscope show --help",
        ),
        (
            ("run", "launch", "--gpu", "0", "--gpu", "1", "--gpu", "2"),
            "--gpu is given 3 times: give it once; see: stallscope run --help",
        ),
        (("show", "-"), "FILE: there is no file -; for standard input name /dev/stdin; see: stallscope show --help"),
        (("replay", ""), "FILE: the name is empty; see: stallscope replay --help"),
        (
            ("record", "a.rec", "secondary-context-d2d", "--variant", "copy-engine", "--sim", "h200", "--gpu", "0"),
            "--gpu selects a real GPU and --sim a simulated one; use only one of them",
        ),
        (
            ("record", "a.rec", "secondary-context", "--variant", "v"),
            'there is no pattern "secondary-context"; did you mean "secondary-context-d2d"?',
        ),
        (("run", "spin", "--sim", "--sim-set", "a=1"), "the profile has no setting 'a'; see: stallscope list --sim"),
        (
            ("fleet", "nomad"),
            'there is no file for a fleet "nomad"; there are: slurm, kubernetes, ansible, container, alerts, grafana',
        ),
    ],
)  # fmt: skip
def test_a_usage_error_is_one_sentence_and_exits_2(
    stallscope_command: Command, arguments: tuple[str, ...], sentence: str
) -> None:
    done = stallscope_command(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"stallscope: {sentence}\n")


def test_every_value_is_checked_by_our_own_sentences() -> None:
    """click's types have messages of their own ("is not a valid integer range"), except those that take any text."""
    for name in ("", *COMMANDS):
        for parameter in command(name).params:
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            known = (click.types.FuncParamType, click.types.StringParamType, click.Path)
            assert flag or isinstance(parameter.type, known), (name, parameter.name)


def test_a_file_of_another_kind_is_named_with_what_reads_it(stallscope_command: Command, tmp_path: Path) -> None:
    empty, folder, check = tmp_path / "empty", tmp_path / "folder", tmp_path / "check.json"
    empty.touch()
    folder.mkdir()
    check.write_text('{"schema": "stallscope.check/3"}')
    other = "name a file that `stallscope record` or --record wrote"
    for arguments, sentence in (
        (("show", str(STALL)), f"{STALL} is a recording, not a check: look at it with `stallscope replay`"),
        (("replay", "--json", str(folder)), f"{folder} is a folder: name a file in it"),
        (("replay", "--json", str(empty)), f"{empty} is empty: {other}"),
        (("replay", "--json", str(check)), f"{check} is not a recording of stallscope: {other}"),
    ):
        done = stallscope_command(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"stallscope: {sentence}\n")


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--gpu", "0"), ("--gpu", "GPU-nothing")])
def test_run_without_a_gpu_exits_3(stallscope_command: Command, arguments: tuple[str, ...]) -> None:
    done = stallscope_command("run", "secondary-context-d2d", *arguments, env=NO_GPU)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith("; `stallscope doctor` says what is missing; `--sim` uses a simulated GPU\n")
    assert done.stdout == ""


def test_an_unknown_gpu_is_named_and_exits_3(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", "--gpu", "7", mode="fine")
    assert done.returncode == 3
    assert "there is no GPU 7" in done.stderr


def test_calibrate_needs_a_gpu(stallscope_command: Command) -> None:
    done = stallscope_command("calibrate", env=NO_GPU)
    assert (done.returncode, done.stdout) == (3, "")
    assert "stallscope doctor" in done.stderr


def test_doctor_without_a_usable_gpu_finds_the_problem_and_exits_3(stallscope_command: Command) -> None:
    done = stallscope_command("doctor", env=NO_GPU)
    assert done.returncode == 3
    assert done.stderr == ""
    assert any(line.startswith("problem  driver") and "→" in line for line in done.stdout.splitlines())


def test_doctor_writes_json_by_its_schema(stallscope_command: Command) -> None:
    done = stallscope_command("doctor", "--json", env=NO_GPU)
    assert done.returncode == 3
    document = json.loads(done.stdout)
    validate(document, doctor.DOCTOR_SCHEMA)
    assert document["level"] == "problem"


def test_a_run_writes_json_by_its_schema_and_nothing_else(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", "--json", mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    validate(json.loads(done.stdout), RUN_SCHEMA)


@pytest.mark.parametrize("width", ["60", "80", "120", "170", "400"])
def test_a_run_shows_every_kind_of_result_at_every_width(stallscope_command: Command, width: str) -> None:
    done = stallscope_command("run", "secondary-context-d2d", mode="all-kinds", env={"COLUMNS": width})
    assert done.returncode == 4
    text = " ".join(done.stdout.split())
    for words in ("(×427)", "STARVED", "1.19 s", "green-context: unsupported: the driver has no", "invalid: the spin"):
        assert words in text
    # Host and device time side by side: the copy takes 5 ms on the host and 10 µs on the GPU.
    assert [line for line in done.stdout.splitlines() if line.startswith("  D2H 4 bytes") and line.count(" 904 ") == 2]
    assert max(map(len, done.stdout.splitlines())) <= int(width)
    assert "cuMemcpyDtoHAsync returned 700" in done.stderr


@pytest.mark.parametrize(("name", "missing"), [("launch", "aggressor"), ("spin", "victim"), ("host", "aggressor")])
def test_blame_without_an_aggressor_or_a_victim_is_one_sentence(
    stallscope_command: Command, name: str, missing: str
) -> None:
    done = stallscope_command("run", name, "--sim", "--blame")
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"no {missing} is selected" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_stall_is_a_result_not_a_failure(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "STALLED" in done.stdout


def test_a_locale_without_utf8_gets_ascii(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", mode="fine", env={"LC_ALL": "C"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "STALLED" in done.stdout


def test_an_engine_failure_is_one_sentence_and_exits_4(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", mode="failing")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "stallscope: the engine ended (killed by signal 9)\n"


def test_an_unexpected_exception_exits_4_not_1(stallscope_command: Command) -> None:
    done = stallscope_command("run", "secondary-context-d2d", mode="broken")
    assert done.returncode == 4
    assert "a mistake in the program" in done.stderr


def test_run_on_a_shared_gpu_needs_allow_shared(stallscope_command: Command) -> None:
    refused = stallscope_command("run", "secondary-context-d2d", mode="shared")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "1 other process (pid 1: train)" in refused.stderr
    assert "--allow-shared" in refused.stderr
    assert stallscope_command("run", "secondary-context-d2d", "--allow-shared", mode="shared").returncode == 0


@pytest.mark.parametrize("package", ["simpy", "numpy"])
def test_a_missing_package_is_one_sentence_with_its_name(
    stallscope_command: Command, package: str, tmp_path: Path
) -> None:
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = stallscope_command("run", "launch", "--sim", "--seconds", "0.5", env={"PYTHONPATH": path})
    assert done.returncode == 4
    assert f"the Python package {package} is missing; reinstall stallscope" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupt_during_the_imports_exits_130(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "stallscope", "list"], env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"stallscope: interrupted\n")
