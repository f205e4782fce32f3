"""Two ranks of PyTorch on two GPUs, watched: which one waits for which, beside truths that were written first."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from factories.processes import children
from factories.watched_programs import PROGRAMS
from stallprobes.machine.libcuda_survey import ask

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FOLDER = PROGRAMS / "ranks"
PROGRAM = FOLDER / "train.py"
TRUTHS: dict[str, list[dict[str, Any]]] = tomllib.loads((FOLDER / "truths.toml").read_text(encoding="utf-8"))
RUNS, SHAPES = TRUTHS["run"], TRUTHS["shape"]
# Shapes of one process, which start the others themselves.
ALONE = ("turns", "threads", "replicas", "peer", "stranger")
# Nobody waits for so much of the time where nobody is slower.
EQUAL = 0.15


@pytest.fixture(autouse=True)
def _two_gpus() -> None:
    """Skip the tests without two GPUs, or without PyTorch."""
    if len(ask().devices) < 2:
        pytest.skip("ranks need two GPUs")
    pytest.importorskip("torch", reason="the ranks need PyTorch with NCCL")


def launcher(run: dict[str, Any], seconds: float) -> list[str]:
    """The command of two ranks, as torchrun starts them."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM)]
    return [*words, *run["arguments"], "--seconds", str(seconds)]


def shaped(name: str, seconds: float) -> list[str]:
    """The command of a program of shapes.py."""
    words = [] if name in ALONE else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [sys.executable, *words, str(FOLDER / "shapes.py"), name, "--seconds", str(seconds)]


def first_words(report: str) -> str:
    """The sentences of a report in front of the first lines of the program, in one line."""
    return " ".join(report.partition("Lines ")[0].split())


def require_shape(shape: dict[str, Any], report: str) -> None:
    """That the first sentences of a report say what is true of a shape."""
    words = first_words(report)
    for some in shape["says"]:
        assert any(each in words or each[:1].upper() + each[1:] in words for each in some), words
    assert not [each for each in shape["never"] if each in words], words


def require_truth(run: dict[str, Any], document: dict[str, Any]) -> None:
    """That the ranks of a document wait for each other as it is true of a run."""
    processes = {one["rank"]["number"]: one for one in document["processes"] if one["rank"] is not None}
    assert sorted(processes) == [0, 1], [one["gaps"] for one in document["processes"]]
    ranks = {}
    for number, process in processes.items():
        assert process["rank"]["size"] == 2
        found = [one["ranks"] for one in process["sequences"] if one["ranks"] is not None]
        ranks[number] = max(found, key=lambda one: one["collectives"])
        assert ranks[number]["partners"] == "watched", ranks[number]
        # Nearly every collective that was recorded in both has its partner.
        assert ranks[number]["matched"] >= 0.5 * ranks[number]["collectives"], ranks[number]
    blamed = {number: [wait for wait in one["waits"] if wait["blamed"]] for number, one in ranks.items()}
    if not run["waits"]:
        assert blamed == {0: [], 1: []}
        assert all(one["waiting"]["share"] < EQUAL for one in ranks.values()), ranks
        return
    waiting, late = run["waits"]
    assert blamed[late] == []
    (wait,) = blamed[waiting]
    assert (wait["name"], wait["sure"]) == (f"rank {late}", True)
    assert wait["share"]["share"] >= run["least"]
    assert wait["delay"]["bound"] == run["bound"], wait
    if run["line"]:
        place = wait["delay"]["place"]
        assert Path(place["file"]).name == PROGRAM.name
        assert run["line"] in PROGRAM.read_text(encoding="utf-8").splitlines()[place["line"] - 1], place


@pytest.mark.parametrize("cost", ["5", "100"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: " ".join(run["arguments"]))
def test_the_rank_that_is_slow_is_what_the_other_one_waits_for(run: dict[str, Any], cost: str, tmp_path: Path) -> None:
    path = tmp_path / "watch.json"
    words = [sys.executable, "-m", "stallscope", "watch", "--headless", "--json", str(path), "--cost", cost, "--"]
    done = subprocess.run([*words, *launcher(run, 12.0)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    require_truth(run, json.loads(path.read_text(encoding="utf-8")))


def test_ranks_that_run_are_attached_together(tmp_path: Path) -> None:
    run = next(one for one in RUNS if one["arguments"] == ["--slow-rank", "1", "--by", "host"])
    path = tmp_path / "watch.json"
    program = subprocess.Popen(launcher(run, 60.0), stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        # Both are in their loop by then.
        time.sleep(20)
        words = [
            sys.executable,
            "-m",
            "stallscope",
            "watch",
            "--pid",
            str(program.pid),
            "--children",
            "--seconds",
            "15",
        ]
        done = subprocess.run([*words, "--headless", "--json", str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        require_truth(run, json.loads(path.read_text(encoding="utf-8")))
    finally:
        os.killpg(program.pid, signal.SIGTERM)
        program.wait()


@pytest.mark.parametrize(
    "shape",
    [one for one in SHAPES if one["name"] != "hang" and (one["says"] or one["never"])],
    ids=lambda shape: shape["name"],
)
def test_programs_of_other_shapes_have_true_first_sentences(shape: dict[str, Any]) -> None:
    seconds = 24.0 if shape["name"] in ("swap", "sharded") else 9.0
    words = [sys.executable, "-m", "stallscope", "watch", "--headless", "--", *shaped(shape["name"], seconds)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    require_shape(shape, done.stderr)


def test_a_rank_that_hangs_is_named_within_ten_seconds() -> None:
    if shutil.which("py-spy") is None:
        pytest.skip("the line of a rank that makes no call needs py-spy")
    (shape,) = (one for one in SHAPES if one["name"] == "hang")
    program = subprocess.Popen(shaped("hang", 16.0), stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        # One rank hangs by then.
        time.sleep(26)
        words = [sys.executable, "-m", "stallscope", "watch", "--pid", str(program.pid), "--children", "--headless"]
        done = subprocess.run([*words, "--seconds", "10"], capture_output=True, text=True)
        require_shape(shape, done.stdout + done.stderr)
    finally:
        # Each rank has a process group of its own, and one of them a kernel that does not end.
        for pid in (*children(program.pid), program.pid):
            os.kill(pid, signal.SIGKILL)
        program.wait()
