"""Recordings with right checksums and wrong content: the sentence names the place and what is wrong there."""

from __future__ import annotations

import copy
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from factories import recordings
from stallprobes.errors import RecordingError
from stallprobes.files.compression import DecompressedStream
from stallprobes.live import replay_document
from stallprobes.machine.telemetry import FIELDS
from stallprobes.recording import line_reader
from stallprobes.recording.observation import Observation
from stallprobes.recording.reader import _LISTS, _TEXTS
from stallprobes.recording.recording import Recording
from stallscope.tui.sources.replay import ReplaySource

# Lines of the base: probe set, observation without a snapshot, one with NVML's values, baselines, two observations;
# baselines with the timeline, two observations with it, a trace.
SET, FIRST, SECOND, BASELINES, THIRD = 0, 1, 2, 3, 4
TRACED_BASELINES, TRACED, LAST, TRACE = 6, 7, 8, 9
MIB = 1 << 20
PART = 1 << 18


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    path = tmp_path_factory.mktemp("base") / "base.rec"
    recordings.record_every_kind(path)
    return recordings.lines_of(path.read_bytes())


def with_value(lines: list[Any], place: str, value: object) -> list[Any]:
    """``lines`` with ``value`` at ``place``, such as ``2.f.s.at``."""
    found = copy.deepcopy(lines)
    *way, last = (int(step) if step.lstrip("-").isdigit() else step for step in place.split("."))
    inner: Any = found
    for step in way:
        inner = inner[step]
    inner[last] = value
    return found


CASES: list[tuple[str, object, str]] = [
    # The probe set.
    (f"{SET}.bench.backend", "rocm", "the probe set of observation 1: bench.backend is not one of cuda, sim, host"),
    (f"{SET}.bench.probes.0.role", "victims", "bench.probes[0].role is not one of victim, aggressor, host"),
    (f"{SET}.bench.probes.0.period_ns", -1, "bench.probes[0].period_ns is not an integer from 0 to"),
    (f"{SET}.bench.probes.0.name", "spin", "bench.probes has a duplicate name"),
    (f"{SET}.bench.probes.0.ops.0", ["cuLaunchKernel"], "is not a list of 3: fn, phase, label"),
    (
        f"{SET}.bench.probes.0.ops.0.1",
        "sleep",
        "bench.probes[0].ops[0].phase is not one of call, wait, start, early, gpu",
    ),
    (f"{SET}.bench.title", "a\x1b[2J", "bench.title has control characters"),
    (f"{SET}.bench.title", "x" * 5000, "bench.title is longer than 4000 characters"),
    # Observations.
    (f"{SECOND}.f.w", float("nan"), "NaN in place of a number"),
    (f"{SECOND}.f.w", -5, "observation 2: f.w is not a number from 0 to"),
    (f"{SECOND}.f.w", 1e300, "observation 2: f.w is not a number from 0 to"),
    (f"{SECOND}.f.e.0", "asleep", "f.e.state is not one of starting, ready, silent, lost, refused"),
    (f"{SECOND}.f.s.at", -1, "f.s.at is not an integer from 0 to"),
    (f"{SECOND}.f.s.at", 2**63, "f.s.at is not an integer from 0 to"),
    (f"{THIRD}.f.s.at", 5, "observation 3: f.s.at is before that of the observation before"),
    (f"{SECOND}.f.s.state", 9, "f.s.state is not an integer from 0 to 3"),
    (f"{SECOND}.f.s.p", {}, "f.s.p has other probes than the set"),
    (f"{SECOND}.f.s.p.launch.0.0", 5, "words.state is not an integer from 0 to 4"),
    (f"{THIRD}.f.s.p.launch.0.2", 3, "words has fewer iterations than the observation before"),
    (f"{SECOND}.f.s.p.launch.2.0", 99, "in_flight.op is not an integer from 0 to"),
    (f"{SECOND}.f.s.p.launch.2.0", 2, "in_flight is of operation 2, and the program of launch has 2"),
    (f"{SECOND}.f.s.p.launch.4", [], "channels has 0 channels, and the program of launch 3"),
    (f"{SECOND}.f.s.p.launch.4.0.0", "gpu", "channels[0] is not the channel call"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [9999, 1], "has buckets that do not ascend from 0 to 2303"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [-1, 1], "has buckets that do not ascend from 0 to 2303"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [5, 1, 4, 1], "has buckets that do not ascend from 0 to 2303"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [5], "has counts that are not a list of pairs of integers"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [5, 1.5], "has counts that are not a list of pairs of integers"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [5, -1], "has a count below 1, or counts above 2**53 in total"),
    (f"{SECOND}.f.s.p.launch.4.0.3", [5, 2**64], "has a count below 1, or counts above 2**53 in total"),
    (f"{SECOND}.f.s.p.launch.4.0.2", 5, "has a maximum below its highest bucket"),
    (f"{THIRD}.f.s.p.launch.4.0.2", 5, "has a maximum that is not an integer from 9000 to"),
    (f"{SECOND}.f.s.p.launch.5", [None], "first_ns has 1 values, and the probe 3 channels"),
    (f"{SECOND}.f.s.slots.launch", [1, 2], "is not a list of 3: allowed_ns, not_alone_ns, in_flight_ns"),
    (f"{SECOND}.f.nvml.state", "well", "f.nvml.state is not one of live, starting, hanging, unavailable, lost"),
    (f"{SECOND}.f.nvml.r.utilisation_percent.0", -4, "value is not a number from 0 to"),
    (f"{SECOND}.f.nvml.r.processes.0", [[1]], "is not a list of 3: pid, name, memory_bytes"),
    # Baselines.
    (f"{BASELINES}.quiet.launch", [1], "the baselines of observation 3: quiet[“launch”] is not a list of 2"),
    (f"{BASELINES}.quiet.nobody", [1, []], "quiet[“nobody”] is not of a probe of the set"),
    (f"{BASELINES}.windows.launch.ns", "long", "windows.launch.ns is not an integer from 0 to"),
    # The timeline.
    (f"{TRACED}.f.timeline", 1, "f.timeline is neither true nor false"),
    (f"{TRACED}.f.s.traced.launch", [[]], "traced[“launch”] is not a list of 2: channels, first_ns"),
    (f"{TRACED}.f.s.traced.launch.0.0.0", "call", "is no channel of launch that the timeline fills"),
    (f"{TRACED}.f.s.traced.launch.0.0.0", "gpu", "is a second histogram of its channel"),
    (f"{TRACED}.f.s.traced.launch.0.0.1", "x", "is no channel of launch that the timeline fills"),
    (f"{TRACED}.f.s.traced.launch.0.0.3", [1, -1], "has a count below 1, or counts above 2**53 in total"),
    (f"{TRACED}.f.s.traced.launch.1", [None], "first_ns has 1 values, and the probe 3 channels"),
    (f"{LAST}.f.s.traced", {}, "lacks channels of launch that the observation before has"),
    (
        f"{TRACED_BASELINES}.traced.launch.all.0.0",
        "call",
        "all[0] is no channel of launch that the timeline fills",
    ),
    (f"{TRACED_BASELINES}.traced.launch.p50", 3, "traced[“launch”].p50 is not a list"),
    # Traces.
    (f"{TRACE}.trace", [], "trace 1: trace is not an object"),
    (f"{TRACE}.trace.begin", -1, "trace 1: trace.begin is not an integer from 0 to"),
    (f"{TRACE}.trace.end", 5, "trace 1: trace.end is not an integer from 1000000000 to"),
    (f"{TRACE}.trace.end", 2**59, "trace 1: trace.end is not an integer from 1000000000 to"),
    (f"{TRACE}.trace.offset", -5.0, "trace.offset is not a number from 0 to"),
    (f"{TRACE}.trace.switches", None, "trace.switches is neither true nor false"),
    (f"{TRACE}.trace.losses", [1], "trace.losses is not a list of 6"),
    (f"{TRACE}.trace.probes", [[]] * 65, "trace.probes has more than 64 items"),
    (f"{TRACE}.trace.probes", [], "calls has a number of a probe or operation that the trace does not have"),
    (f"{TRACE}.trace.probes.0.2", "victims", "trace.probes[0][2] is not one of victim, aggressor, host"),
    (f"{TRACE}.trace.probes.0.5", [], "calls has a number of a probe or operation that the trace does not have"),
    (f"{TRACE}.trace.probes.0.5.0", ["f", "later"], "is not one of call, wait, start, early, gpu, due"),
    (f"{TRACE}.trace.probes.0.1", "a\x1b[2J", "trace.probes[0][1] has control characters"),
    (f"{TRACE}.trace.contexts", [[1, "x" * 5000]], "trace.contexts[0][1] is longer than 4000 characters"),
    (f"{TRACE}.trace.streams.0", [1, 2], "trace.streams[0] is not a list of 3"),
    (f"{TRACE}.trace.others", ["x"] * 1001, "trace.others has more than 1000 items"),
    (f"{TRACE}.trace.open.0", [1, 60, 5], "trace.open[0] is of operation 60, which the probe does not have"),
    (f"{TRACE}.trace.open.0", [2, 0, 5], "trace.open[0][0] is not an integer from 0 to 1"),
    (f"{TRACE}.trace.trigger", [0, 7, 6], "trace.trigger returned before it began"),
    (f"{TRACE}.trace.trigger", [2, 6, 7], "trace.trigger[0] is not an integer from 0 to 1"),
    (f"{TRACE}.trace.calls", [0], "trace.calls is not a list of 7"),
    (f"{TRACE}.trace.calls.0", 10**6, "trace.calls[0] is not an integer from 0 to 20000"),
    (f"{TRACE}.trace.calls.1", [1, 2, 3], "trace.calls[1] has 3 values for 2 rows"),
    (f"{TRACE}.trace.calls.1", [1, 2.5], "trace.calls[1] is not a list of integers"),
    (f"{TRACE}.trace.calls.1", [True, 2], "trace.calls[1] is not a list of integers"),
    (f"{TRACE}.trace.calls.1", [5, -1], "trace.calls is not in the order of the starts"),
    (f"{TRACE}.trace.calls.1", [0, 2**70], "trace.calls[1] has a value that is not from"),
    (f"{TRACE}.trace.calls.1", [0, 10**12], "trace.calls has a row outside of the trace's span"),
    (f"{TRACE}.trace.calls.2", [-1], "trace.calls[2] has a value that is not from 0 to"),
    (f"{TRACE}.trace.calls.3", [2], "calls has a number of a probe or operation that the trace does not have"),
    (f"{TRACE}.trace.calls.6", [2], "trace.calls[6] has a value that is not from 0 to 1"),
    (f"{TRACE}.trace.work.3", [5, 0, 1], "trace.work has a number twice"),
    (f"{TRACE}.trace.work.5", [57], "trace.work has a kind that is no work of a GPU"),
    (f"{TRACE}.trace.work.9", [-2], "trace.work[9] has a value that is not from -1 to 64"),
    (f"{TRACE}.trace.work.15", [10**13], "trace.work has a call that began before the clock did"),
    (f"{TRACE}.trace.tenures.2", [-2], "trace.tenures[2] has a value that is not from -1 to"),
    (f"{TRACE}.trace.overheads.0", 0, "trace.overheads[1] has 1 values for 0 rows"),
]


@pytest.mark.parametrize(("place", "value", "words"), CASES)
def test_wrong_content_is_one_sentence_with_its_place(
    lines: list[Any], tmp_path: Path, place: str, value: object, words: str
) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, place, value)))
    with pytest.raises(RecordingError) as caught:
        replay_document.document(file)
    sentence = str(caught.value)
    assert sentence.startswith(f"{file} is damaged: ")
    assert sentence.endswith("; copy it again, or record again")
    assert words in sentence
    assert "\n" not in sentence


def test_every_value_of_nvml_has_a_kind() -> None:
    names = {field.name for field in FIELDS}
    assert {*_TEXTS, *_LISTS, "processes"} <= names


def test_a_wall_clock_that_was_set_back_is_no_step_back_of_the_replay(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, f"{THIRD}.f.w", lines[FIRST]["f"]["w"] - 3600)))
    found = Recording(file)
    times = [found.at_s(number) for number in range(len(found))]
    assert times == sorted(times)
    assert found.number_at(0.5) == 2
    assert found.seconds == pytest.approx(2.0)


def playing(file: Path) -> tuple[ReplaySource, Callable[[float], list[Observation]]]:
    """A replay, and a function that plays it to a time in seconds."""
    now = [0.0]
    source = ReplaySource(Recording(file), clock=lambda: now[0])
    source.start()

    def play_to(seconds: float) -> list[Observation]:
        now[0] = seconds
        return source.observations()

    return source, play_to


def test_a_replay_stops_before_a_damaged_observation_and_seeking_goes_past_it(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, f"{THIRD}.f.s.state", 9)))
    source, play_to = playing(file)
    assert len(play_to(10.0)) == 2
    assert source.damaged_here
    assert source.problem is not None
    assert "observation 3: f.s.state is not an integer" in source.problem
    assert source.position_text == "REPLAY, DAMAGED HERE 0:00/0:02"
    assert play_to(11.0) == []
    source.seek(2.0)
    assert not source.damaged_here
    assert len(source.observations()) == 3
    assert source.problem is not None


def test_damaged_baselines_are_none_and_the_replay_continues(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, f"{BASELINES}.quiet.launch", [1])))
    source, play_to = playing(file)
    observations = play_to(10.0)
    assert len(observations) == 6
    assert source.problem is None
    assert source.baselines(observations[3]) == {}
    assert source.problem is not None
    assert "the baselines of observation" in source.problem


def test_what_the_screen_reads_is_checked_before_it_opens(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    for place, value in ((f"{SET}.bench.backend", "rocm"), (f"{FIRST}.f.e.0", "asleep"), (f"{THIRD}.f.w", "soon")):
        file.write_bytes(recordings.recording_of(with_value(lines, place, value)))
        with pytest.raises(RecordingError, match="is damaged"):
            Recording(file)


def test_a_recording_that_comes_from_a_pipe_is_read(lines: list[Any]) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(recordings.recording_of(lines))

    thread = threading.Thread(target=write)
    thread.start()
    found = Recording(Path(f"/proc/self/fd/{reading}"))
    thread.join()
    os.close(reading)
    assert len(found) == 6


def endless_line(_: list[Any]) -> Iterator[bytes]:
    yield from (b"0" * PART for _ in range(128))


def unknown_lines(_: list[Any]) -> Iterator[bytes]:
    yield from (b'{"later":"%s"}' % (b"0" * PART) for _ in range(64))


def probe_sets(lines: list[Any]) -> Iterator[bytes]:
    yield from (recordings.encoded(lines[SET]) + b" " * PART for _ in range(64))


def baselines(lines: list[Any]) -> Iterator[bytes]:
    yield from (recordings.encoded(lines[number]) + b" " * PART for _ in range(32) for number in (BASELINES, FIRST))


@pytest.mark.parametrize(
    ("content", "free"),
    [
        (endless_line, 1 << 40),
        (unknown_lines, 1 << 40),
        (unknown_lines, 4 * MIB),
        (probe_sets, 1 << 40),
        (baselines, 1 << 40),
    ],
)
def test_a_small_file_with_much_text_takes_little_memory(
    content: Callable[[list[Any]], Iterator[bytes]],
    free: int,
    lines: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_reader, "_FREE_BYTES", free)
    file = tmp_path / "a.rec"
    parts = [recordings.encoded(line) for line in lines[:2]]
    if content is endless_line:
        parts.append(b"".join(content(lines)))
    else:
        parts.extend(content(lines))
    file.write_bytes(recordings.sealed(parts))
    del parts
    assert file.stat().st_size < MIB
    for read in (replay_document.document, Recording):
        tracemalloc.start()
        with suppress(RecordingError):
            read(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 12 * MIB


def test_any_part_of_a_long_recording_is_read_without_what_is_before_it(
    lines: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "_POINT_BYTES", 1 << 17)
    file = tmp_path / "a.rec"
    many = [lines[SET], *(with_value([lines[FIRST]], "0.f.w", 1e9 + number)[0] for number in range(8_000))]
    file.write_bytes(recordings.recording_of(many))
    found = Recording(file)
    assert len(found) == 8_000
    read: list[int] = []
    usual = DecompressedStream.read

    def counted(stream: DecompressedStream) -> bytes:
        piece = usual(stream)
        read.append(len(piece))
        return piece

    monkeypatch.setattr(DecompressedStream, "read", counted)
    assert next(found.play(7_500)).wall_s == 1e9 + 7_500
    assert sum(read) < 1 << 18
