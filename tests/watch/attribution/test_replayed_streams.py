"""Streams of calls and records replayed beside the injected library: it writes what the library wrote that recorded
them, and the same causes follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.call_stream import save_stream
from factories.program_truths import require_right_causes
from factories.recorded_programs import PROGRAMS, recorded
from factories.replayed_streams import (
    EVERY_CALL,
    calls_of,
    counts_of,
    explained,
    in_flight,
    records_of,
    replayed,
    threads_of,
)
from factories.stand_in import VERSION, StandIn, build_replay
from factories.watched_folders import activity_records
from factories.watched_programs import findings_of, read_watched
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import DEFAULT_SLOW_NS
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.map_reader import MapFile, watch_files


@pytest.fixture(scope="module")
def replaying(stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build_replay(tmp_path_factory.mktemp("replaying"), stand_in)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_library_finds_the_causes_of_a_stream_of_an_h200(name: str, replaying: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir(mode=0o700)
    there = recorded(name, folder)
    here = replayed(replaying, save_stream(folder, tmp_path / "stream"), tmp_path / "out")
    require_right_causes(name, findings_of(here), PROGRAMS[name])
    assert explained(here) == explained(there)
    assert calls_of(here.process) == calls_of(there.process)
    assert counts_of(here.process) == counts_of(there.process)
    assert records_of(here) == records_of(there)
    assert (here.process.lost_calls, here.process.lost_records) == (0, 0)


@pytest.mark.parametrize("program", ["copies", "records 500", "threads-of-steps 3 4", "short-threads 12 5 4"])
def test_a_stream_with_every_call_is_replayed_as_it_was(
    program: str, stand_in: StandIn, replaying: StandIn, tmp_path: Path
) -> None:
    stand_in.run(tmp_path / "recorded", *program.split(), options=EVERY_CALL)
    stream = save_stream(tmp_path / "recorded", tmp_path / "stream")
    there = read_watched(tmp_path / "recorded")
    here = replayed(replaying, stream, tmp_path / "out", slow_ns=0)
    assert calls_of(here.process) == calls_of(there.process)
    assert counts_of(here.process) == counts_of(there.process)
    assert records_of(here) == records_of(there)
    ends = [[(one.name, one.ended_ns) for one in threads_of(process)] for process in (here.process, there.process)]
    assert ends[0] == ends[1]
    # With another limit, the library decides anew which calls it keeps.
    slow = replayed(replaying, stream, tmp_path / "slow").process
    assert calls_of(slow) == [
        [one for one in of if one.duration_ns >= DEFAULT_SLOW_NS] for of in calls_of(there.process)
    ]
    assert slow.calls == there.process.calls


def test_a_stream_of_a_killed_program_ends_with_its_call_in_flight(
    stand_in: StandIn, replaying: StandIn, tmp_path: Path
) -> None:
    stand_in.run(tmp_path / "recorded", "kill", options=EVERY_CALL)
    stream = save_stream(tmp_path / "recorded", tmp_path / "stream")
    here = replayed(replaying, stream, tmp_path / "out").process
    assert here.ended_ns is None
    assert in_flight(here) == in_flight(stream.process)
    assert sum(len(one.in_flight) for one in here.threads) == 1


def test_no_record_of_a_long_stream_is_lost(stand_in: StandIn, replaying: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "recorded", "records", "12000", options=WatchOptions(slow_ns=10**12))
    here = replayed(replaying, save_stream(tmp_path / "recorded", tmp_path / "stream"), tmp_path / "out")
    assert (here.process.calls, here.process.lost_records) == (12_005, 0)
    assert sum(one.kind is RecordKind.KERNEL for one in here.records) == 12_000


def test_a_file_without_some_calls_makes_no_stream(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "threads", "1", "3000", options=EVERY_CALL)
    with pytest.raises(ValueError, match=r"slow calls of thread .* were overwritten"):
        save_stream(tmp_path / "out", tmp_path / "stream")


def test_the_records_of_a_stream_have_the_layout_of_its_libcupti(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "recorded", "records", "5", options=EVERY_CALL)
    stream = save_stream(tmp_path / "recorded", tmp_path / "stream")
    for version in (26, VERSION):
        folder = tmp_path / str(version)
        here = replayed(build_replay(folder, stand_in, version), stream, folder / "out")
        assert here.process.cupti_version == version
        assert [one.kind for one in here.records] == [one.kind for one in activity_records(stream.batch)]
        assert [one.start_ns for one in here.records] == [one.start_ns for one in activity_records(stream.batch)]
    (path,) = watch_files(tmp_path / "recorded")
    with MapFile(path) as file:
        # Arrays have no equality.
        assert file.read().changed(windows=stream.process.windows, ranges=stream.process.ranges) == stream.process
