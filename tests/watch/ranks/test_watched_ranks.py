"""Two processes with the injected library that wait for each other in collectives, beside stand-ins for CUDA."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from factories.rank_files import torchrun
from factories.stand_in import StandIn
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.division.collectives import is_nccl
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.intervals import Int64s
from stallprobes.watch.rank_text import ranks_texts
from stallprobes.watch.ranks.result import Partners
from stallprobes.watch.reading.folder import create_folder

STEPS, SIZE = 300, 8
# Host time before each step (us).
FAST, SLOW = 1_000, 9_000


def start(stand_in: StandIn, folder: Path, arrivals: Path, number: int, host_us: int) -> subprocess.Popen[str]:
    """A rank of two that is watched."""
    words = (number, 2, STEPS, host_us, arrivals)
    return subprocess.Popen(
        [str(stand_in.folder / "ranks"), *map(str, words)],
        env=stand_in.environment(folder) | torchrun(number, 2),
        stdout=subprocess.PIPE,
        text=True,
    )


def waited_share(came: Int64s, number: int, end_ns: int, divided_ns: int) -> float:
    """The share of the last ``divided_ns`` before ``end_ns`` in which a rank was in a collective without the other one.

    ``came`` has the time (ns) at which each rank began each collective: a row for each step.
    """
    begin_ns = end_ns - divided_ns
    waits = came.max(1).clip(begin_ns) - came[:, number].clip(begin_ns)
    return int(waits.sum()) / divided_ns


@pytest.mark.parametrize("slow", [True, False])
def test_ranks_that_run_are_matched_and_their_waits_are_those_that_they_had(
    stand_in: StandIn, tmp_path: Path, slow: bool
) -> None:
    folder, arrivals = create_folder(tmp_path), tmp_path / "arrivals"
    arrivals.write_bytes(bytes(2 * STEPS * SIZE))
    ranks = [start(stand_in, folder, arrivals, number, SLOW if slow and number else FAST) for number in range(2)]
    analysis = FolderAnalysis(folder)
    while any(rank.poll() is None for rank in ranks):
        analysis.poll()
        time.sleep(0.1)
    ends = [int(rank.communicate()[0]) for rank in ranks]
    analysis.poll()
    found = analysis.findings()
    assert [rank.returncode for rank in ranks] == [0, 0]
    came = np.fromfile(arrivals, np.int64).reshape(STEPS, 2)
    processes = {rank.pid: number for number, rank in enumerate(ranks)}
    truths: dict[int, float] = {}
    for process in found.processes:
        number = processes[process.pid]
        assert process.rank is not None
        assert (process.rank.number, process.rank.size) == (number, 2)
        (sequence,) = process.sequences
        communicates = sequence.ranks
        assert communicates is not None
        assert communicates.partners is Partners.WATCHED
        assert communicates.matched >= 0.95 * communicates.collectives > 0
        assert communicates.waiting is not None
        truths[number] = waited_share(came, number, ends[number], sequence.steady_ns)
        assert communicates.waiting.share == pytest.approx(truths[number], abs=0.02)
        assert sequence.parts.get(Part.RANK_WAIT, 0) == pytest.approx(
            communicates.waiting.share * sequence.steady_ns, abs=2
        )
    # On a busy machine anybody may be late.
    if slow and truths[0] > 0.4 and truths[1] < 0.1:
        (text,) = ranks_texts(found.processes)
        assert text.startswith("rank 0 waits in NCCL for rank 1, which is host-bound")
        first = next(process for process in found.processes if processes[process.pid] == 0)
        assert first.sequences[0].verdict is Bound.COMMUNICATION
        # The record of each wait names its stream, whose work was in front of it.
        waits = [call for call in first.slow_calls if call.function == "cuStreamSynchronize"]
        assert [call.cause for call in waits].count(WaitCause.GPU_WORK) > len(waits) / 2 > 0
        works = [work for call in waits if call.cause is WaitCause.GPU_WORK for work in call.evidence.work]
        assert any(work.rank == "rank 1" and is_nccl(work.name) for work in works)
    if not slow and max(truths.values()) < 2 * min(truths.values()):
        assert not any("NCCL" in text for text in ranks_texts(found.processes))


def test_a_rank_alone_says_that_nobody_else_is_watched(stand_in: StandIn, tmp_path: Path) -> None:
    folder, arrivals = create_folder(tmp_path), tmp_path / "arrivals"
    arrivals.write_bytes(bytes(2 * STEPS * SIZE))
    alone = start(stand_in, folder, arrivals, 0, FAST)
    other = subprocess.Popen(
        [str(stand_in.folder / "ranks"), "1", "2", str(STEPS), str(SLOW), str(arrivals)],
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL,
    )
    analysis = FolderAnalysis(folder)
    while alone.poll() is None:
        analysis.poll()
        time.sleep(0.1)
    other.wait()
    alone.communicate()
    analysis.poll()
    (process,) = analysis.findings().processes
    communicates = process.sequences[0].ranks
    assert communicates is not None
    assert (communicates.partners, communicates.waiting) == (Partners.NONE, None)
