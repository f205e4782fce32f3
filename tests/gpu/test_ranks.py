"""Two ranks of PyTorch on two GPUs, watched: which one waits for which, beside truths that were written first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from factories.watched_programs import PROGRAMS
from stallprobes.machine.libcuda_survey import ask

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FOLDER = PROGRAMS / "ranks"
PROGRAM = FOLDER / "train.py"
RUNS: list[dict[str, Any]] = tomllib.loads((FOLDER / "truths.toml").read_text(encoding="utf-8"))["run"]
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
