"""The analysis of a folder: processes that end in any way, files that cannot be read, and the choice of a libcupti."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factories.hostile_files import with_function
from factories.replayed_streams import EVERY_CALL
from factories.stand_in import COMPILER, StandIn
from factories.watch_files import write_watch_file
from stallprobes.errors import WatchError
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import FILE_BYTES, MODULES_AT, Module
from stallprobes.records.libcupti import LibraryFile
from stallprobes.watch import environment, folder_analysis
from stallprobes.watch.division.parts import Part
from stallprobes.watch.environment import cupti_of_this_machine
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.reading import kernel_names
from stallprobes.watch.reading.folder import ProcessLife, create_folder
from stallprobes.watch.reading.map_reader import watch_files
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.source import FolderSource
from stallprobes.watch.reading.untrusted_parser import UntrustedParser


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty private folder."""
    return create_folder(tmp_path)


def test_a_process_is_read_while_it_runs_and_once_after_its_end(stand_in: StandIn, folder: Path) -> None:
    program = stand_in.start(folder, "hang")
    analysis = FolderAnalysis(folder)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "hung\n"
        analysis.poll()
        (running,) = analysis.findings().processes
    finally:
        program.kill()
        program.communicate()
    (before,) = [thread.in_flight[0].age_ns for thread in running.threads if thread.in_flight]
    ages = set()
    for _ in range(2):
        analysis.poll()
        (ended,) = analysis.findings().processes
        ages |= {thread.in_flight[0].age_ns for thread in ended.threads if thread.in_flight}
    assert (running.ended, ended.ended) == (False, True)
    # Whether a thread had a CPU can be known of a process that runs.
    assert not any("had no CPU" in gap for gap in running.gaps)
    # It waited until the last sign of the process, not until it was read.
    (after,) = ages
    assert after >= before
    (path,) = watch_files(folder)
    path.unlink()
    analysis.poll()
    assert len(analysis.findings().processes) == 1


def test_a_killed_process_ended_at_its_last_sign(stand_in: StandIn, folder: Path) -> None:
    assert stand_in.run(folder, "kill").returncode == -signal.SIGKILL
    durations = []
    for _ in range(2):
        analysis = FolderAnalysis(folder)
        analysis.poll()
        (process,) = analysis.findings().processes
        durations.append(process.duration_ns)
        assert process.ended
    assert durations[0] == durations[1]


def test_what_a_process_writes_between_its_first_reading_and_its_end_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "4-0.watch"
    write_watch_file(path, slots=0)

    def continues_and_ends(process: WatchedProcess, place: Path) -> ProcessLife:
        write_watch_file(path)
        return ProcessLife.ENDED

    monkeypatch.setattr(folder_analysis, "life_of", continues_and_ends)
    analysis = FolderAnalysis(folder)
    analysis.poll()
    (process,) = analysis.findings().processes
    assert process.ended
    assert [len(thread.rows) for thread in process.threads] == [3]


def test_a_damaged_file_is_a_problem_and_the_others_are_read(folder: Path) -> None:
    write_watch_file(folder / "4-0.watch")
    (folder / "5-0.watch").write_bytes(b"damaged!")
    os.truncate(folder / "5-0.watch", FILE_BYTES)
    analysis = FolderAnalysis(folder)
    analysis.poll()
    found = analysis.findings()
    assert [process.pid for process in found.processes] == [4]
    (problem,) = found.problems
    assert problem.endswith("5-0.watch is not the file of a watched process.")


def test_a_folder_of_others_is_refused(folder: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(WatchError, match="can be used by others"):
        FolderAnalysis(folder).poll()


def test_the_libcupti_of_the_drivers_version_is_chosen(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cupti_of_this_machine(str(tmp_path / "no libcuda")) is None
    # A libcuda that does not say its version.
    assert cupti_of_this_machine(str(stand_in.folder / "libcuda.so.1")) is None
    source, library = tmp_path / "libcuda.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 13000; return 0; }")
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    found = [LibraryFile(f"/lib/libcupti.so.{major}", major, "toolkit") for major in (12, 13)]
    monkeypatch.setattr(environment, "found_libraries", lambda: found)
    assert cupti_of_this_machine(str(library)) == Path("/lib/libcupti.so.13")
    found.append(LibraryFile("/new/libcupti.so.13", 13, "Python package"))
    versions = {"/lib/libcupti.so.13": 130_000, "/new/libcupti.so.13": 130_500}
    monkeypatch.setattr(environment, "ask_version", versions.get)
    assert cupti_of_this_machine(str(library)) == Path("/new/libcupti.so.13")


def test_the_time_of_a_program_is_divided_while_it_runs_and_at_its_end(stand_in: StandIn, folder: Path) -> None:
    program = stand_in.start(folder, "steps-until-stopped", "5", options=EVERY_CALL)
    analysis = FolderAnalysis(folder)
    try:
        while not any(one.division is not None for one in analysis.findings().processes):
            analysis.poll()
            time.sleep(0.05)
    finally:
        program.terminate()
        program.communicate()
    analysis.poll()
    (found,) = analysis.findings().processes
    assert found.division is not None
    (one,) = found.sequences
    assert found.ended
    assert one.threads == (found.threads[0].id,)
    assert sum(one.parts.values()) == one.covered_ns > 0
    # Every call and every record is known, so that no instant is unknown, unless the reader came too late.
    assert one.parts.get(Part.UNKNOWN, 0) == 0 or found.missed_records
    assert {Part.KERNELS, Part.SUBMITTING, Part.HOST, Part.END} <= one.parts.keys()
    # It has less than three seconds without an event of the start-up.
    assert not found.division.steady or found.duration_ns > 3 * 10**9


def test_the_time_until_a_ring_is_filled_is_counted_from_the_reading(
    stand_in: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what the reading itself takes: else a ring is filled while the reader rests."""
    program = stand_in.start(folder, "steps-until-stopped", "100", options=EVERY_CALL)
    try:
        analysis = FolderAnalysis(folder)
        assert analysis.room_s == math.inf
        while not any(one.calls for one in analysis.processes):
            analysis.poll()
        (reading,) = analysis._readings.values()
        reading.room_s = 2.0
        monkeypatch.setattr(time, "monotonic_ns", lambda: reading.last_ns + 500_000_000)
        assert analysis.room_s == pytest.approx(1.5)
        live = LiveProgram(None, WatchedProgram("steps"))
        live._analysis = analysis
        assert live.rest_s(0.01) == pytest.approx(0.11)
        assert live.rest_s(1.0) == pytest.approx(1.5)
        monkeypatch.setattr(time, "monotonic_ns", lambda: reading.last_ns + 3_000_000_000)
        assert live.rest_s(1.0) == 0.0
    finally:
        program.terminate()
        program.communicate()


def test_the_next_reading_is_due_after_a_number_of_records_and_calls(
    stand_in: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause that only followed the time of the readings would grow with them until a ring limits it."""
    monkeypatch.setattr(folder_analysis, "_MOST_ROWS", 10)
    read: list[tuple[int, int]] = []
    program = stand_in.start(folder, "steps-until-stopped", "100", options=EVERY_CALL)
    try:
        analysis = FolderAnalysis(
            folder, None, lambda _, records, calls, at_ns: read.append((at_ns, len(records) + len(calls)))
        )
        # The first reading has no time before it.
        while len(read) < 2 or not read[-1][1]:
            analysis.poll()
        (reading,) = analysis._readings.values()
        passed_s = (read[-1][0] - read[-2][0]) / 1e9
        assert reading.room_s == pytest.approx(passed_s * 10 / read[-1][1])
    finally:
        program.terminate()
        program.communicate()


def test_a_process_knows_the_kernels_of_the_others_of_its_folder(stand_in: StandIn, folder: Path) -> None:
    for _ in range(2):
        assert stand_in.start(folder, "records", "100").wait() == 0
    analysis = FolderAnalysis(folder)
    analysis.poll()
    readings = list(analysis._readings.values())
    assert len(readings) == 2
    for one, other in zip(readings, reversed(readings), strict=True):
        assert other.process is not None
        (kernels,) = one.analysis.others()
        assert kernels.process == f"host (pid {other.process.pid})"
        assert len(kernels.starts) > 0
        assert (kernels.starts[1:] >= kernels.starts[:-1]).all()


def test_a_process_knows_how_many_calls_the_others_that_run_make(stand_in: StandIn, folder: Path) -> None:
    ended, running = (stand_in.start(folder, "steps-until-stopped", "100", options=EVERY_CALL) for _ in range(2))
    try:
        analysis = FolderAnalysis(folder)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            analysis.poll()
            readings = list(analysis._readings.values())
            if len(readings) == 2 and all(one.analysis.divider.rate for one in readings):
                break
            time.sleep(0.1)
        for one, other in zip(readings, reversed(readings), strict=True):
            assert other.analysis.divider.rate > 0
            assert list(one.analysis.rates_beside()) == [other.analysis.divider.rate]
        ended.terminate()
        ended.communicate()
        analysis.poll()
        (left,) = (one for one in readings if not one.ended)
        assert list(left.analysis.rates_beside()) == []
    finally:
        for program in (ended, running):
            program.terminate()
            program.communicate()


def test_files_and_names_beyond_the_limits_are_counted_in_sentences(folder: Path, tmp_path: Path) -> None:
    def refuse() -> tuple[socket.socket, int, Callable[[], None]]:
        raise PermissionError

    library = tmp_path / "library.so"
    library.write_bytes(with_function())
    write_watch_file(folder / "4-0.watch")
    form: Any = dtype_of(Module)
    at = MODULES_AT + int(form.fields["path"][1])
    with (folder / "4-0.watch").open("r+b") as file:
        os.pwrite(file.fileno(), os.fsencode(library) + b"\0", at)
    kernel_names.use(UntrustedParser(refuse))
    try:
        analysis = FolderAnalysis(FolderSource(folder, parser=UntrustedParser(refuse)))
        for _ in range(2):
            analysis.poll()
            kernel_names.demangle_all(["_Z3addPf", "_Z5solvei", "gemm"])
            assert analysis.findings().problems == (
                "2 names of functions could not be demangled within the limits of time and memory, and are shown as in "
                "the program.",
                "1 file of code could not be read within the limits of time and memory: its functions and lines have "
                "no names.",
            )
    finally:
        kernel_names.use(None)
    # Another analysis begins from nothing.
    assert FolderAnalysis(folder).findings().problems == ()
