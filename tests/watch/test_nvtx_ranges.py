"""NVTX ranges of a program: those that its slow calls were in."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from factories.stand_in import Outcome, StandIn, build_with_nvtx
from factories.watch_calls import LAUNCH, at_ns, batch, process, slow, thread
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.environment import NVTX_VARIABLE, WatchOptions, variables
from stallprobes.watch.reading.folder import read_folder
from stallprobes.watch.sentences import call_text

HEADERS = (Path("/usr/local/cuda/include"), *Path("/usr/local").glob("cuda-*/include"))
REAL = next((path for path in HEADERS if (path / "nvtx3" / "nvToolsExt.h").exists()), None)
# Outside of any, in step, in a range with a wide name, in loss, in that of a domain twice, in step again, outside.
RANGES = ["", "step", "vorwärts 😀", "loss", "reduce", "reduce", "step", ""]
# The levels that the functions returned.
LEVELS = "111\n"


def ranges_of(outcome: Outcome) -> list[str]:
    assert (outcome.returncode, outcome.errors) == (0, "")
    (read,) = outcome.processes
    return [one.range for each in read.threads for one in each.slow_calls]


def test_slow_calls_name_the_range_that_they_were_in(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", program="ranges")
    assert ranges_of(outcome) == RANGES
    assert outcome.output == LEVELS


@pytest.mark.skipif(REAL is None, reason="no headers of NVTX")
def test_ranges_of_nvtx_itself(stand_in: StandIn, tmp_path: Path) -> None:
    assert REAL is not None
    program, folder = tmp_path / "ranges", tmp_path / "out"
    build_with_nvtx(program, REAL, stand_in)
    folder.mkdir(mode=0o700)
    done = subprocess.run([program], env=stand_in.environment(folder), capture_output=True, text=True)
    contents = read_folder(folder)
    assert ranges_of(Outcome(done.returncode, done.stdout, done.stderr, contents.processes)) == RANGES
    assert done.stdout == LEVELS


def test_ranges_beyond_what_is_kept_are_counted(stand_in: StandIn, tmp_path: Path) -> None:
    assert ranges_of(stand_in.run(tmp_path / "out", "threads", program="ranges")) == ["deep"] * 8


def test_ranges_of_another_tool_stay_with_it() -> None:
    found = variables(
        Path("/inject.so"), Path("/out"), WatchOptions(), {NVTX_VARIABLE: "/opt/nsys/libToolsInjection.so"}
    )
    assert NVTX_VARIABLE not in found


def test_a_program_that_is_not_watched_keeps_its_ranges(stand_in: StandIn, tmp_path: Path) -> None:
    """The variable may outlive the watch, as in a shell with the environment of --print-env."""
    environment = {"PATH": os.environ["PATH"], NVTX_VARIABLE: str(stand_in.folder / "inject.so")}
    done = subprocess.run([stand_in.folder / "ranges"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, LEVELS, "")


def test_a_sentence_names_the_range() -> None:
    analysis = ProcessAnalysis()
    call = replace(slow(LAUNCH, 0, 5000), range="forward")
    analysis.feed(process(thread(calls=[call])), batch([]), at_ns(10_000))
    (found,) = analysis.findings().slow_calls
    assert "cuLaunchKernel in thread-100 (thread 100), in the NVTX range forward, took 5.0" in call_text(found)
