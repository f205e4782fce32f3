"""Programs beside the stand-ins, from their first call to the findings: the causes of their slow calls."""

from __future__ import annotations

from pathlib import Path

from factories.stand_in import StandIn
from factories.waiting import undisturbed
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.reading.map_reader import MapFile, watch_files

ATTEMPTS = 20


def explained(stand_in: StandIn, folder: Path, *arguments: str) -> ProcessFindings:
    """The findings about a program that has ended well."""
    outcome = stand_in.run(folder, *arguments)
    assert (outcome.returncode, outcome.errors) == (0, "")
    (path,) = watch_files(folder)
    analysis = ProcessAnalysis()
    with MapFile(path) as file:
        process = file.read()
        analysis.feed(process, file.records(), process.ended_ns or process.clocks.monotonic_ns)
    return analysis.findings()


def test_a_blocking_copy_and_a_wait_behind_a_kernel(stand_in: StandIn, tmp_path: Path) -> None:
    found = undisturbed(
        lambda number: explained(stand_in, tmp_path / f"out{number}", "behind-kernel"),
        lambda found: len(found.slow_calls) == 2 and all(one.share > 0.9 for one in found.slow_calls),
    )
    assert [(one.function, one.cause, one.certainty) for one in found.slow_calls] == [
        ("cuMemcpyDtoHAsync_v2", WaitCause.GPU_WORK, Certainty.PROVEN),
        ("cuStreamSynchronize", WaitCause.GPU_WORK, Certainty.PROVEN),
    ]
    for one in found.slow_calls:
        assert one.evidence.work[0].name in ("reduce(float*)", "_Z6reducePf")
        assert one.share > 0.9
    # All of the time but that of the copy itself.
    gpu = next(loss for loss in found.lost if loss.cause is WaitCause.GPU_WORK)
    assert gpu.ns == gpu.proven_ns > 0.95 * found.lost_ns


def test_a_launch_beside_a_pageable_copy_of_another_thread(stand_in: StandIn, tmp_path: Path) -> None:
    # A machine that is busy may take the CPU from one of two calls that end together.
    for attempt in range(ATTEMPTS):
        found = explained(stand_in, tmp_path / f"out{attempt}", "beside-copies", "20")
        launches = [one for one in found.slow_calls if one.function == "cuLaunchKernel"]
        beside = [one for one in launches if one.cause is WaitCause.PAGEABLE_COPY]
        if beside:
            break
    assert beside
    assert {one.cause for one in launches} <= {WaitCause.PAGEABLE_COPY, WaitCause.UNATTRIBUTED}
    for one in beside:
        assert one.certainty is Certainty.BESIDE
        assert one.culprit is not None
        assert (one.culprit.function, one.culprit.bytes) == ("cuMemcpyDtoHAsync_v2", 4096)
        assert one.culprit.thread != one.thread
    # The copies are not blamed on the launches.
    copies = [one for one in found.slow_calls if one.function != "cuLaunchKernel"]
    assert len(copies) == 20
    assert {one.cause for one in copies} == {WaitCause.UNATTRIBUTED}


def test_a_call_that_loads_a_module(stand_in: StandIn, tmp_path: Path) -> None:
    found = undisturbed(
        lambda number: explained(stand_in, tmp_path / f"out{number}", "load-module"),
        # The share of the call in which a module was loaded is smaller where the program was stopped in it.
        lambda found: [one.certainty for one in found.slow_calls] == [Certainty.PROVEN],
    )
    (one,) = found.slow_calls
    assert (one.function, one.cause, one.certainty) == (
        "cuModuleLoadData", WaitCause.MODULE_LOADING, Certainty.PROVEN
    )  # fmt: skip
    assert one.evidence.overhead_ns > 0


def test_a_program_without_slow_calls_has_no_cause(stand_in: StandIn, tmp_path: Path) -> None:
    found = explained(stand_in, tmp_path / "out", "records", "100")
    assert sum(row.total.count for thread in found.threads for row in thread.rows) == found.calls > 100
    # A busy machine may make a call slow, but nothing is to blame for it.
    assert {one.cause for one in found.slow_calls} <= {WaitCause.UNATTRIBUTED}
