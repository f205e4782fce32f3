"""Commands check, compare, merge and show: output, files, exit codes, and arguments rejected before measuring."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories import documents, matrices, matrix_examples
from factories.command_line import run_in_terminal, run_into
from factories.documents import valid
from factories.loaded_modules import loaded_modules, running
from factories.waiting import LIMIT_S
from stallprobes.matrix import check_file
from stallprobes.matrix.matrix import Matrix, Status
from stallprobes.wording import check_wording
from stallscope.cli import check

if TYPE_CHECKING:
    from factories.command_line import Command, Process

ON_H200: Mapping[str, object] = {**matrices.FINGERPRINT, "gpu": "NVIDIA H200"}


def saved(path: Path, made: Matrix | None = None, **changed: object) -> str:
    """A check in a file, by default what the made-up machine measures; its name."""
    made = made or matrices.made_up(11, drift=0.02, times={("d2d", "host-alloc-free"): 427.0})
    check_file.save(made.changed(**{"fingerprint": ON_H200, **changed}), path)
    return str(path)


def test_a_check_is_a_table_with_findings_in_words(stallscope_command: Command) -> None:
    done = stallscope_command("check", mode="fine", env={"COLUMNS": "200"})
    assert (done.returncode, done.stderr) == (0, "")
    title, stalls, changes, measured = done.stdout.splitlines()[:4]
    assert title.startswith("NVIDIA H200")
    assert stalls.startswith("Stalls    1 STALLED of 16 cells. Worst: d2d beside host-alloc-free (call p50 ")
    assert changes.startswith("Changes   not compared")
    assert measured.startswith("Measured  16 of 16 cells; baselines vary by ×1.")
    assert "427/" not in done.stdout
    assert "(×427)" in done.stdout
    assert "Make it up otherwise." in done.stdout
    assert "\nmachine:" not in done.stdout
    full = stallscope_command("check", "--full", mode="fine", env={"COLUMNS": "200"}).stdout
    assert full.splitlines()[:4] == [title, stalls, changes, measured]
    assert "427/" in full
    assert "1 STALLED, 15 quiet" in full
    assert "Remedy: Make it up otherwise." in full
    assert "machine: hostname node-a" in full


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_every_kind_of_result_is_shown_at_every_width(stallscope_command: Command, width: str) -> None:
    done = stallscope_command("check", "--full", mode="all-kinds", env={"COLUMNS": width})
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= int(width)
    text = " ".join(done.stdout.split())
    for words in ("STARVED", "cuLaunchKernel in flight for 1.20 s", "it needs two GPUs", "the clocks were throttled"):
        assert words in text


def test_a_locale_without_utf8_gets_ascii(stallscope_command: Command) -> None:
    done = stallscope_command("check", mode="all-kinds", env={"LC_ALL": "C"})
    assert done.stdout.isascii()


def test_the_hostname_option_sets_the_host_name(stallscope_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "check.json.gz"
    done = stallscope_command("check", "--full", "--hostname", " rack 3 ", "--save", str(path), mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "machine: hostname rack 3" in done.stdout
    assert check_file.load(path).fingerprint["hostname"] == "rack 3"


@pytest.mark.parametrize("name", ["", " ", "a\x1bb", "a" * 256])
def test_a_hostname_that_no_host_has_is_a_usage_error(stallscope_command: Command, name: str) -> None:
    done = stallscope_command("check", "--hostname", name, mode="never")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--hostname" in done.stderr


def test_json_is_the_check_by_its_schema_and_nothing_else(stallscope_command: Command) -> None:
    done = stallscope_command("check", "--json", mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    document = valid(done.stdout, "stallscope.check/3")
    assert len(document["cells"]) == 20


def test_files_are_written_and_show_reads_them(stallscope_command: Command, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("check.json", "check.html", "check.prom")]
    done = stallscope_command("check", "--save", names[0], "--html", names[1], "--prometheus", names[2], mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "<title>stallscope check · NVIDIA H200" in Path(names[1]).read_text(encoding="utf-8")
    assert Path(names[2]).read_text(encoding="utf-8").startswith("# HELP stallscope_")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["check.html", "check.json", "check.prom"]
    # Its own interpreter has another hash seed, on which no output may depend.
    again = stallscope_command("show", names[0], own_interpreter=True)
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    assert valid(stallscope_command("show", names[0], "--json").stdout, "stallscope.check/3")
    assert stallscope_command("show", names[0], "--html", str(tmp_path / "again.html")).returncode == 0
    assert (tmp_path / "again.html").read_bytes() == Path(names[1]).read_bytes()


def test_what_is_unusual_by_the_reference_is_named_and_changes_no_exit_code(
    stallscope_command: Command, tmp_path: Path
) -> None:
    page = tmp_path / "check.html"
    done = stallscope_command("check", "--html", str(page), mode="slower")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "against other machines (NVIDIA H200, driver 580.159.04): ",
        "reference: h200-580.159.04: NVIDIA H200, driver 580.159.04, CUDA 13.0, 4 checks of 2 machines, 2026-11-21",
        "Stalled on the reference, not here: ",
        "beside spin: d2d@secondary wait p50 ×1.0, on the reference ×",
        "This machine differs: driver 590.2 (reference 580.159.04).",
    ):
        assert words in " ".join(done.stdout.split())
    assert "Stalled on the reference, not here: " in page.read_text(encoding="utf-8")
    document = valid(stallscope_command("check", "--json", mode="slower").stdout, "stallscope.check/3")
    unusual = {(one["row"], one["column"]) for one in document["reference"]["stalled_there"]}
    assert ("d2d@secondary", "spin") in unusual
    assert document["reference"]["differences"] == [{"key": "driver", "old": "580.159.04", "new": "590.2"}]
    none = stallscope_command("check", "--reference", "none", mode="slower")
    assert none.returncode == 0
    assert "reference" not in none.stdout


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize(
    ("mode", "fail_on", "code"), [("unusual", "unusual", 1), ("fine", "unusual", 0), ("unusual", None, 0)]
)
def test_a_stall_that_no_other_machine_has_exits_1_on_request(
    stallscope_command: Command, tmp_path: Path, compared: bool, mode: str, fail_on: str | None, code: int
) -> None:
    made = matrices.made_up(12, drift=0.02, times={("launch", "alloc-async"): 40.0})
    arguments = ["--compare", saved(tmp_path / "old.json", made)] if compared and mode == "unusual" else []
    arguments += ["--fail-on", fail_on] if fail_on else []
    done = stallscope_command("check", *arguments, mode=mode)
    assert (done.returncode, done.stderr) == (code, "")
    named = "beside alloc-async: launch call p50 ×40, on the reference ×"
    assert (named in " ".join(done.stdout.split())) == (mode == "unusual" and not (compared and fail_on is None))


def test_a_comparison_that_fails_on_what_is_unusual_says_so_in_json(
    stallscope_command: Command, tmp_path: Path
) -> None:
    old = saved(tmp_path / "old.json")
    done = stallscope_command(
        "check", "--compare", old, "--json", "--fail-on", "worse,unusual", "--reference", "h200-580.159.04", mode="fine"
    )
    assert done.returncode == 0
    document = valid(done.stdout, "stallscope.compare/3")
    assert document["fail_on"] == ["worse", "unusual"]
    assert document["check"]["reference"]["stalled_here"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sim", "v100"), "there is no reference of"),
        (("--reference", "none"), "--fail-on unusual needs a reference; leave out --reference none"),
        (("--timeline",), "timeline"),
    ],
)
def test_failing_on_what_is_unusual_without_a_reference_is_refused_before_measuring(
    stallscope_command: Command, arguments: tuple[str, ...], words: str
) -> None:
    done = stallscope_command("check", "--fail-on", "unusual", *arguments, mode="never")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert words in done.stderr


def test_failing_on_what_is_unusual_needs_a_cell_to_compare(stallscope_command: Command) -> None:
    done = stallscope_command("check", "--fail-on", "unusual", mode="all-kinds")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no cell could be compared with a reference" in done.stderr


@pytest.mark.parametrize(("name", "more"), [("h100", ()), ("none.json", ()), ("h200-580.159.04", ("--sim", "v100"))])
def test_a_reference_that_is_unknown_or_does_not_fit_is_refused_before_measuring(
    stallscope_command: Command, name: str, more: tuple[str, ...]
) -> None:
    done = stallscope_command("check", "--reference", name, *more, mode="never")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert name in done.stderr


def test_a_worse_cell_is_named_and_exits_1(stallscope_command: Command, tmp_path: Path) -> None:
    old = saved(tmp_path / "old.json")
    done = stallscope_command("check", "--compare", old, mode="slower")
    assert (done.returncode, done.stderr) == (1, "")
    assert "driver  580.1 → 590.2" in done.stdout
    assert "WORSE · 1 cell" in done.stdout
    assert "launch beside spin: call p50 2." in done.stdout
    assert "at most 1 such comparison in 100" in done.stdout
    assert done.stdout.index("NEW  ") < done.stdout.index("driver  580.1") < done.stdout.index("WORSE ·")


def test_an_unchanged_check_exits_0(stallscope_command: Command, tmp_path: Path) -> None:
    done = stallscope_command("check", "--compare", saved(tmp_path / "old.json"), mode="fine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No difference in GPU, driver, settings and host" in done.stdout
    assert "SAME · 20 cells, of which 4 are baselines" in done.stdout


@pytest.mark.parametrize(
    ("fail_on", "code"), [("none", 0), ("better", 0), ("starved,better", 0), ("worse", 1), (" Worse , unsure", 1)]
)
def test_fail_on_selects_the_changes_that_exit_1(
    stallscope_command: Command, tmp_path: Path, fail_on: str, code: int
) -> None:
    old = saved(tmp_path / "old.json")
    assert stallscope_command("check", "--compare", old, "--fail-on", fail_on, mode="slower").returncode == code


@pytest.mark.parametrize("fail_on", ["", ",", "slow", "none,worse", "worse none"])
def test_an_invalid_fail_on_is_a_usage_error(stallscope_command: Command, tmp_path: Path, fail_on: str) -> None:
    old = saved(tmp_path / "old.json")
    done = stallscope_command("check", "--compare", old, "--fail-on", fail_on, mode="never")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--fail-on" in done.stderr


def test_a_comparison_is_json_by_its_schema_with_the_check_in_it(stallscope_command: Command, tmp_path: Path) -> None:
    old = saved(tmp_path / "old.json")
    done = stallscope_command("check", "--compare", old, "--json", mode="slower")
    assert done.returncode == 1
    document = valid(done.stdout, "stallscope.compare/3")
    assert document["regressions"] == [{"row": "launch", "column": "spin"}]
    assert document["differences"] == [{"key": "driver", "old": "580.1", "new": "590.2"}]
    assert document["counts"]["worse"] == 1
    documents.validate(document["check"], "stallscope.check/3")


def test_two_saved_checks_are_compared_without_a_gpu(stallscope_command: Command, tmp_path: Path) -> None:
    old = saved(tmp_path / "old.json")
    new = saved(tmp_path / "new.json", matrices.made_up(2, drift=0.02, times={("launch", "spin"): 2.0}))
    done = stallscope_command("compare", old, new, "--html", str(tmp_path / "c.html"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "WORSE · 1 cell" in done.stdout
    assert "BETTER · 1 cell" in done.stdout
    assert "<h2>What changed</h2>" in (tmp_path / "c.html").read_text(encoding="utf-8")
    document = valid(stallscope_command("compare", old, new, "--json").stdout, "stallscope.compare/3")
    assert document["check"] is None
    assert stallscope_command("compare", old, old).returncode == 0


def test_another_gpu_is_refused_unless_forced(stallscope_command: Command, tmp_path: Path) -> None:
    old = saved(tmp_path / "old.json", fingerprint={**ON_H200, "gpu": "Tesla V100"})
    new = saved(tmp_path / "new.json")
    refused = stallscope_command("compare", old, new)
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1)
    assert "Tesla V100" in refused.stderr
    assert "--force" in refused.stderr
    assert stallscope_command("compare", old, new, "--force").returncode == 0
    assert stallscope_command("check", "--compare", old, mode="never").returncode == 2
    assert stallscope_command("check", "--compare", old, "--force", mode="fine").returncode == 0


def test_a_real_gpu_is_not_compared_with_a_simulated_one(stallscope_command: Command, tmp_path: Path) -> None:
    old = saved(tmp_path / "old.json", matrix_examples.largest())
    done = stallscope_command("check", "--compare", old, mode="never")
    assert (done.returncode, done.stdout) == (2, "")
    assert "simulated" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--save", "THERE"), "--force"),
        (("--html", "THERE"), "--force"),
        (("--prometheus", "THERE"), "--force"),
        (("--save", "nowhere/check.json"), "nowhere"),
        (("--html", "."), "folder"),
        (("--save", "-"), "--json"),
        (("--save", "/dev/null", "--force"), "/dev/null"),
        (("--save", "a.json", "--html", "./a.json"), "same file"),
        (("--compare", "nothing.json"), "nothing.json"),
        (("--compare", "THERE"), "THERE"),
        (("--victims", "lunch"), "launch"),
        (("--victims", "launch,,d2d"), "--victims"),
        (("--victims", ""), "--victims"),
        (("--victims", "spin"), "spin"),
        (("--aggressors", "launch"), "launch"),
        (("--pattern", "secondary-contex-d2d"), "secondary-context-d2d"),
        (("--gpu", "0", "--sim"), "--gpu"),
        (("--sim", "h2000"), "h200"),
        (("--sim-seed", "3"), "--sim"),
        (("--seed", "-1"), "--seed"),
        (("--fail-on", "worse"), "--compare"),
        (("--fail-on", "unusual,worse"), "--fail-on worse applies to a comparison only"),
        (("--fail-on", "none"), "--compare"),
        (("extra",), "extra"),
    ],
)
def test_invalid_arguments_are_rejected_in_one_sentence_before_the_measurement(
    stallscope_command: Command, tmp_path: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("THERE").write_text("somebody's", encoding="utf-8")
    done = stallscope_command("check", *arguments, mode="never")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert words in done.stderr
    assert Path("THERE").read_text(encoding="utf-8") == "somebody's"
    assert os.listdir() == ["THERE"]


def test_with_force_files_are_replaced_and_the_old_one_is_read_first(
    stallscope_command: Command, tmp_path: Path
) -> None:
    file = saved(tmp_path / "check.json")
    done = stallscope_command("check", "--compare", file, "--save", file, "--force", mode="slower")
    assert done.returncode == 1
    assert check_file.load(file).fingerprint["driver"] == "590.2"


def test_a_prometheus_file_replaces_the_previous_one(stallscope_command: Command, tmp_path: Path) -> None:
    file = str(tmp_path / "check.prom")
    for _ in range(2):
        done = stallscope_command("check", "--prometheus", file, mode="fine")
        assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_fails_to_be_written_does_not_affect_the_others(
    stallscope_command: Command, tmp_path: Path
) -> None:
    file, page = tmp_path / "check.json", tmp_path / "check.html"
    done = stallscope_command(
        "check", "--save", str(file), "--html", str(page), mode="spoilt", env={"SPOILT": str(file)}
    )
    assert done.returncode == 2
    assert "(×427)" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "--save" in done.stderr
    assert str(file) in done.stderr
    assert file.read_text(encoding="utf-8") == "somebody else's"
    assert page.exists()


def test_a_check_without_a_valid_cell_exits_4_with_the_reason(stallscope_command: Command) -> None:
    done = stallscope_command("check", mode="nothing")
    assert done.returncode == 4
    assert done.stderr == "stallscope: nothing could be measured: the spin did not run\n"
    assert "invalid: see --full for the reasons." in done.stdout
    full = stallscope_command("check", "--full", mode="nothing").stdout
    assert "Measured, but not counted" in full


def test_a_check_that_lost_engines_shows_the_rest_names_what_is_lost_and_exits_4(
    stallscope_command: Command, tmp_path: Path
) -> None:
    saved = tmp_path / "check.json"
    done = stallscope_command("check", "--save", str(saved), mode="lost")
    assert (done.returncode, check_wording.SYMBOLS_TITLE in done.stdout) == (4, True)
    assert done.stderr == (
        "stallscope: 2 engines failed during the check: killed by SIGKILL; 1 cell lost: d2d beside host-alloc-free\n"
    )
    # A regression beside them is no reason to exit as if the check were complete.
    compared = stallscope_command("check", "--compare", str(saved), "--force", mode="lost")
    assert (compared.returncode, compared.stderr) == (4, done.stderr)


def test_an_engine_failure_is_one_sentence_and_exits_4(stallscope_command: Command) -> None:
    done = stallscope_command("check", mode="failing")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "stallscope: the engine ended (killed by signal 9)\n"


def test_a_check_without_a_gpu_exits_3(stallscope_command: Command, tmp_path: Path) -> None:
    done = stallscope_command("check", "--save", str(tmp_path / "c.json"), env={"CUDA_VISIBLE_DEVICES": ""})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert not list(tmp_path.iterdir())


def test_a_shared_gpu_needs_allow_shared(stallscope_command: Command) -> None:
    refused = stallscope_command("check", mode="shared")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "1 other process (pid 1: train)" in refused.stderr
    assert stallscope_command("check", "--allow-shared", mode="shared").returncode == 0


def test_hosts_are_merged_and_the_outlier_is_named(stallscope_command: Command, tmp_path: Path) -> None:
    files = [
        saved(
            tmp_path / f"{n}.json",
            matrices.made_up(n, drift=0.02, times={("launch", "spin"): 5.0} if n == 3 else {}),
            fingerprint={**ON_H200, "hostname": f"node-{n}"},
        )
        for n in range(5)
    ]
    whole = str(tmp_path / "whole.json")
    done = stallscope_command("merge", *files, "--save", whole, "--html", str(tmp_path / "whole.html"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 machines merged" in done.stdout
    about = done.stdout[done.stdout.index("About the hosts") : done.stdout.index(check_wording.SYMBOLS_TITLE)]
    assert "node-3 " in about
    assert "node-1" not in about
    assert "About the hosts" in (tmp_path / "whole.html").read_text(encoding="utf-8")
    assert set(valid(Path(whole).read_text(encoding="utf-8"), "stallscope.check/3")["hosts"]) == {
        f"node-{n}" for n in range(5)
    }
    assert about in stallscope_command("show", whole).stdout
    again = stallscope_command("merge", *files, "--save", whole)
    assert (again.returncode, again.stdout) == (2, "")


def test_checks_of_different_gpus_are_merged_with_force_only(stallscope_command: Command, tmp_path: Path) -> None:
    one = saved(tmp_path / "one.json")
    other = saved(tmp_path / "other.json", fingerprint={**ON_H200, "gpu": "Tesla V100"})
    done = stallscope_command("merge", one, other)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "Tesla V100" in done.stderr
    assert stallscope_command("merge", one, other, "--force").returncode == 0


@pytest.mark.parametrize("name", ["show", "merge", "compare"])
def test_a_file_without_a_check_is_one_sentence(stallscope_command: Command, tmp_path: Path, name: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "stallscope.check/3"}', encoding="utf-8")
    files = (str(bad), str(bad)) if name == "compare" else (str(bad),)
    done = stallscope_command(name, *files)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "bad.json" in done.stderr


@pytest.mark.parametrize("arguments", [("show",), ("merge",), ("compare",), ("compare", "one"), ("show", "a", "b")])
def test_too_few_or_too_many_files_are_usage_errors(stallscope_command: Command, arguments: tuple[str, ...]) -> None:
    done = stallscope_command(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_control_characters_of_a_file_are_not_printed(stallscope_command: Command, tmp_path: Path) -> None:
    file = tmp_path / "evil.json"
    document = documents.of_check(matrices.made_up(1, times={("launch", "spin"): 30.0}))
    text = json.dumps(document).replace("spin kernel", "\\u001b[2J\\u0007spin").replace("It was made", "\\u001b[31mIt")
    file.write_text(text, encoding="utf-8")
    done = stallscope_command("show", str(file))
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["check", "compare", "merge", "show"])
def test_help_loads_nothing_that_measures_and_names_the_options(name: str) -> None:
    loaded, out = loaded_modules(running(name, "--help"))
    assert not {module.partition(".")[0] for module in loaded} & {"textual", "rich", "numpy", "cuda", "simpy"}
    assert "--html FILE" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_check_keeps_its_results_and_exits_130(
    measuring: Callable[..., Process], number: signal.Signals, tmp_path: Path
) -> None:
    files = ("--save", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html"))
    process = measuring("check", *files, mode="until-stopped")
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "15 of 16 cells (1 not reached), interrupted; " in out
    assert err == "stallscope: interrupted; the results so far are shown\n"
    assert check_file.load(tmp_path / "c.json").interrupted
    assert "Interrupted" in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_an_interrupted_check_is_compared(measuring: Callable[..., Process], tmp_path: Path) -> None:
    process = measuring("check", "--compare", saved(tmp_path / "old.json"), "--json", mode="until-stopped")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    document = valid(out, "stallscope.compare/3")
    assert document["only_old"] == [{"row": "launch", "column": "alloc-async"}]


@pytest.mark.parametrize("signals", [1, 2])
def test_a_check_that_ignores_the_stop_request_is_interrupted(
    measuring: Callable[..., Process], signals: int, tmp_path: Path
) -> None:
    process = measuring("check", "--save", str(tmp_path / "c.json"), mode="deaf")
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err) == (130, "", "stallscope: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_reported_and_the_files_are_written(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        code, err = run_into(full, "check", "--save", str(tmp_path / "c.json"), mode="fine")
    assert (code, err) == (2, "stallscope: the result could not be written: No space left on device\n")
    assert check_file.load(tmp_path / "c.json")


def in_a_terminal(mode: str, **changed: str) -> str:
    """What a check writes to a terminal of its own on stderr."""
    code, _, seen = run_in_terminal("check", mode=mode, env=changed)
    assert code == 0
    return seen


def test_the_progress_bar_shows_the_remaining_time_on_a_terminal() -> None:
    seen = in_a_terminal("all-kinds", TERM="xterm")
    assert "[######------------------] 11/44, 12 s left  repeat 1 of 4" in seen
    assert seen.endswith("\r\x1b[K")


def test_no_progress_is_printed_without_a_terminal(stallscope_command: Command) -> None:
    assert stallscope_command("check", mode="all-kinds").stderr == ""
    assert "\x1b" not in in_a_terminal("all-kinds", TERM="dumb")


def test_a_simulated_check_is_marked_as_simulated(stallscope_command: Command, tmp_path: Path) -> None:
    chosen = ("--victims", "launch", "--victims", "d2d@secondary", "--aggressors", "spin", "--quick")
    first = str(tmp_path / "first.json")
    done = stallscope_command("check", "--sim", *chosen, "--save", first)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SIMULATED GPU, profile h200, seed 1 · 3 victims × 1 aggressor")
    assert "STALLED  d2d@secondary beside spin: wait p50 " in done.stdout
    again = stallscope_command("check", "--sim", "--sim-seed", "2", *chosen, "--compare", first, "--json")
    assert again.returncode == 0, again.stderr
    document = valid(again.stdout, "stallscope.compare/3")
    assert document["new"]["backend"] == "simulated"
    other = stallscope_command("check", "--sim", "v100", *chosen, "--compare", first)
    assert (other.returncode, other.stdout) == (2, "")
    assert "v100" in other.stderr


def test_a_check_that_was_interrupted_at_once_replaces_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "before.json"
    file.write_bytes(b"the check before")
    made = matrices.made_up(11)
    cells = {key: cell.changed(status=Status.MISSING, repeats=(), verdicts=()) for key, cell in made.cells.items()}
    monkeypatch.setattr(check, "_measure", lambda *_: made.changed(cells=cells, interrupted=True))
    with pytest.raises(SystemExit) as ended:
        check.command(["--sim", "--quick", "--save", str(file), "--force"])
    assert ended.value.code == 130
    assert "nothing was measured, and no file was written" in capsys.readouterr().err
    assert file.read_bytes() == b"the check before"


def test_a_check_that_does_not_ask_for_the_end_in_time_shows_its_results_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object) -> Matrix:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                signal.pause()
        return matrices.made_up(11).changed(interrupted=True)

    monkeypatch.setattr(check, "_measure", measured)
    with pytest.raises(SystemExit) as ended:
        check.command(["--sim", "--quick"])
    assert ended.value.code == 130
    assert capsys.readouterr().err.endswith("stallscope: interrupted; the results so far are shown\n")
