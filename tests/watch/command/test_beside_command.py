"""``watch --beside`` beside the model of a GPU: its turns, its table, and what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factories.documents import validate
from factories.forked_processes import ForkedProcess
from factories.processes import children, engines, has_ended, wait_for_end
from factories.shared_folder import shared_folder
from factories.waiting import LIMIT_S, wait_until
from truth.programs import Programs, build
from truth.schedules import Schedule, launch, main, op

SECONDS = 600


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = shared_folder(tmp_path_factory, "truth", lambda place: build(place, model=True))
    return Programs(folder, model=True)


@pytest.fixture
def program(programs: Programs, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program whose steps take 6 ms, in its steady part."""
    text = tmp_path / "steps.txt"
    text.write_text(Schedule("steps", (main(launch(5500.0), op("sync"), op("step")),), seconds=SECONDS).text)
    line = [str(programs.folder / "program"), str(text), str(tmp_path / "steps.trace")]
    with subprocess.Popen(line, env=programs._environment(), stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "steady\n"
        try:
            yield started
        finally:
            started.kill()


def watch(programs: Programs, folder: Path, pid: int, *arguments: str) -> subprocess.Popen[str]:
    free = str(folder / "free")
    line = ["factories.simulated_aggressors", free, "watch", "--pid", str(pid), "--headless", *arguments]
    return ForkedProcess(
        [sys.executable, "-m", *line],
        env=programs._environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def engine_of(watching: subprocess.Popen[str]) -> int | None:
    """The process of the aggressors, None before it runs."""
    assert watching.poll() is None, watching.communicate()
    return next(iter(engines(watching.pid)), None)


def test_turns_end_by_themselves_and_the_program_continues(
    programs: Programs, program: subprocess.Popen[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    watching = watch(programs, tmp_path, program.pid, "--beside", "spin", "--json", str(file))
    out, err = watching.communicate(timeout=3 * LIMIT_S)
    assert (watching.returncode, program.poll()) == (0, None), err
    assert "aggressors will run on the program's GPU, in turns: spin; all ranks of its job slow down" in err
    document: Any = json.loads(file.read_text())
    for process in document["processes"]:
        # Some of the thousands, which take seconds.
        del process["slow_calls"][100:]
    validate(document, "stallscope.watch/3")
    beside = document["beside"]
    (row,) = beside["rows"]
    assert (row["aggressor"], row["turns"], beside["unit"], beside["pid"]) == ("spin", 6, "step", program.pid)
    assert row["ratio"] is not None
    assert row["sentence"] in out or "spin" in out
    assert beside["problem"] == ""
    assert children(watching.pid) == []


def test_where_memory_shrinks_the_aggressors_end_and_the_program_continues(
    programs: Programs, program: subprocess.Popen[str], tmp_path: Path
) -> None:
    watching = watch(programs, tmp_path, program.pid, "--beside", "spin", "--allow-shared")
    wait_until(lambda: engine_of(watching), "the aggressors run", 2 * LIMIT_S)
    engine = engine_of(watching)
    assert engine is not None
    (tmp_path / "free").write_text("13")
    out, err = watching.communicate(timeout=3 * LIMIT_S)
    assert watching.returncode == 125
    # Their process may not have been ready yet.
    assert "13.0 of 140.0 GiB" in err or "only 13.0 GiB of the GPU's memory were free" in err
    assert has_ended(engine)
    assert program.poll() is None
    assert "GPU" in out


def test_sigkill_of_stallscope_leaves_the_program_alone(
    programs: Programs, program: subprocess.Popen[str], tmp_path: Path
) -> None:
    watching = watch(programs, tmp_path, program.pid, "--beside", "spin,dram")
    wait_until(lambda: engine_of(watching), "the aggressors run", 2 * LIMIT_S)
    engine = engine_of(watching)
    assert engine is not None
    os.kill(watching.pid, signal.SIGKILL)
    watching.communicate()
    wait_for_end(engine)
    assert program.poll() is None
