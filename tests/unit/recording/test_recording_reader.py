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

from factories import recordings, replayed
from stallprobes.errors import RecordingError
from stallprobes.files.compression import DecompressedStream
from stallprobes.recording import line_reader
from stallprobes.recording.observation import Observation
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
    """``lines`` with ``value`` at ``place``, such as ``2.observation.wall_s``."""
    found = copy.deepcopy(lines)
    *way, last = (int(step) if step.lstrip("-").isdigit() else step for step in place.split("."))
    inner: Any = found
    for step in way:
        inner = inner[step]
    inner[last] = value
    return found


PROBE_SET = f"{SET}.probe_set"
LAUNCH = "observation.snapshot.probes.launch"
# Figures of a probe by their place.
ITERATIONS, IN_FLIGHT, CHANNELS = 2, 13, 15
TABLES = f"{TRACE}.trace.trace"
ODD = "it has control characters, or too long a string"

# The codec's own tests have values of another type or beyond their limits; here is what only a recording can have.
CASES: list[tuple[str, object, str]] = [
    # The probe set.
    (f"{PROBE_SET}.backend", "rocm", "the probe set of observation 1: backend: invalid value 'rocm'"),
    (f"{PROBE_SET}.probes.0.name", "spin", "the probe set of observation 1: probes have a duplicate name"),
    (f"{PROBE_SET}.probes.0.program.ops", [["f", "call", str(n)] for n in range(300)], "have more than 256 channels"),
    (f"{PROBE_SET}.title", "a\x1b[2J", ODD),
    (f"{PROBE_SET}.title", "a\x9b2J", ODD),
    (f"{PROBE_SET}.title", "x" * 70_000, ODD),
    # Observations.
    (f"{SECOND}.observation.wall_s", float("nan"), "observation 2: wall_s: expected a number from 0 to 1e+10"),
    (f"{SECOND}.observation.wall_s", -5, "observation 2: wall_s: expected a number from 0 to 1e+10"),
    (f"{SECOND}.observation.wall_s", 1e300, "observation 2: wall_s: expected a number from 0 to 1e+10"),
    (f"{THIRD}.observation.snapshot.at_ns", 5, "observation 3: the snapshot is before that of the observation before"),
    (f"{SECOND}.observation.snapshot.at_ns", 2**63, "observation 2: snapshot.at_ns: expected an integer <= "),
    (f"{SECOND}.observation.snapshot.probes", {}, "the snapshot has other probes than the set"),
    (f"{THIRD}.{LAUNCH}.{ITERATIONS}", 3, "launch has fewer iterations than in the observation before"),
    (f"{SECOND}.{LAUNCH}.{IN_FLIGHT}.0", 2, "launch has no such call in flight"),
    (f"{SECOND}.{LAUNCH}.{IN_FLIGHT}.2", -1, "launch has no such call in flight"),
    (f"{SECOND}.{LAUNCH}.{IN_FLIGHT}.2", 2**63, "launch has no such call in flight"),
    (f"{SECOND}.{LAUNCH}.{CHANNELS}", [], "launch lacks a channel, or has one twice"),
    (f"{SECOND}.{LAUNCH}.{CHANNELS}.0.0.0", "gpu", "launch lacks a channel, or has one twice"),
    (f"{TRACED}.{LAUNCH}.{CHANNELS}.3.0.0", "gpu", "launch lacks a channel, or has one twice"),
    (f"{TRACED}.{LAUNCH}.{CHANNELS}.3.0.1", "x", "launch has a channel that the timeline does not fill"),
    (f"{TRACED}.{LAUNCH}.{CHANNELS}.3.0.0", "call", "launch lacks a channel, or has one twice"),
    (f"{LAST}.{LAUNCH}.{CHANNELS}.3.0.1", "x", "launch lacks a channel, or has one twice"),
    (f"{SECOND}.{LAUNCH}.{CHANNELS}.0.1", [9, 5, 1, 4, 1], "has buckets that do not ascend from 0 to 2303"),
    (f"{THIRD}.{LAUNCH}.{CHANNELS}.0.1", [100, 5, 2**53], "launch has more than 2**53 calls"),
    (f"{SECOND}.observation.telemetry.state", "well", "telemetry.state: invalid value 'well'"),
    (f"{SECOND}.observation.telemetry.readings.power_w.0", -4, "telemetry.readings.power_w[0]: expected "),
    (
        f"{SECOND}.observation.telemetry.readings.processes.0",
        [1],
        "telemetry.readings.processes[0][0]: expected an object",
    ),
    # Baselines.
    (f"{BASELINES}.baselines.probes.nobody", [], "the baselines of observation 3: "),
    (f"{BASELINES}.baselines.probes.launch.percentiles", {}, "observation 3: a baseline lacks a percentile"),
    # Traces.
    (f"{TRACE}.trace", [], "trace 1: wall_s: expected a number from 0 to 1e+10"),
    (f"{TABLES}.end_ns", 5, "trace 1: the trace ends before it begins, or is too long"),
    (f"{TABLES}.end_ns", 2**59, "trace 1: the trace ends before it begins, or is too long"),
    (f"{TABLES}.probes", [], "the trigger is no call of a probe"),
    (f"{TABLES}.probes.0.ops", [], "the trace has no probe 0 with an operation 0"),
    (f"{TABLES}.open_calls.0.op", 60, "the trace has no probe 1 with an operation 60"),
    (f"{TABLES}.open_calls.0.since_ns", -2, "the trace has a number below -1, or above 2**60"),
    (f"{TABLES}.open_work.0.since_ns", 2**63, "the trace has a number below -1, or above 2**60"),
    (f"{TABLES}.trigger.returned_ns", 6, "the trigger is no call of a probe"),
    (f"{TABLES}.trigger.probe", 2, "the trigger is no call of a probe"),
    (f"{TABLES}.calls.0", 10**6, "trace.calls[0]: expected an integer <= 20000"),
    (f"{TABLES}.calls.1", [[0]], "a table of 2 rows has 1 columns of {1} values"),
    (f"{TABLES}.calls.1.1", [1, 2, 3], "a table of 2 rows has 6 columns of {1, 2, 3} values"),
    (f"{TABLES}.calls.1.3", [1005000000, -1], "calls are not in the order of the starts"),
    (f"{TABLES}.calls.1.3", [1005000000, 10**12], "calls have a row outside of the trace's span"),
    (f"{TABLES}.calls.1.4", [2], "calls have a row outside of the trace's span, or one that ends before it starts"),
    (f"{TABLES}.calls.1.4", [2**63 - 1], "calls have a value below -1, or above 2**60"),
    (f"{TABLES}.calls.1.4", [2**59], "calls have a row that is too long"),
    (f"{TABLES}.calls.1.0", [2], "the trace has no probe 2 with an operation 0"),
    (f"{TABLES}.calls.1.2", [2**62, 2**62], "calls have a value below -1, or above 2**60"),
    (f"{TABLES}.work.1.0", [5, 0, 1], "work has a number twice"),
    (f"{TABLES}.work.1.1", [57], "work has a kind that is no work of a GPU"),
    (f"{TABLES}.work.1.14", [-2], "work have a value below -1, or above 2**60"),
]


def sentence_of(file: Path) -> str:
    """Why a damaged recording is not read to its end."""
    with pytest.raises(RecordingError) as raised:
        replayed.read_all(file)
    return str(raised.value)


@pytest.mark.parametrize(("place", "value", "words"), CASES)
def test_wrong_content_is_one_sentence_with_its_place(
    lines: list[Any], tmp_path: Path, place: str, value: object, words: str
) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, place, value)))
    sentence = sentence_of(file)
    assert sentence.startswith(f"{file} is damaged: ")
    assert sentence.endswith("; copy it again, or record again")
    assert words in sentence
    assert "\n" not in sentence


def test_a_wall_clock_that_was_set_back_is_no_step_back_of_the_replay(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(
        recordings.recording_of(
            with_value(lines, f"{THIRD}.observation.wall_s", lines[FIRST]["observation"]["wall_s"] - 3600)
        )
    )
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
    file.write_bytes(recordings.recording_of(with_value(lines, f"{THIRD}.observation.snapshot.engine_state", 9)))
    source, play_to = playing(file)
    assert len(play_to(10.0)) == 2
    assert source.damaged_here
    assert source.problem is not None
    assert "observation 3: snapshot.engine_state: invalid value 9" in source.problem
    assert source.position_text == "REPLAY, DAMAGED HERE 0:00/0:02"
    assert play_to(11.0) == []
    source.seek(2.0)
    assert not source.damaged_here
    assert len(source.observations()) == 3
    assert source.problem is not None


def test_damaged_baselines_are_none_and_the_replay_continues(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(recordings.recording_of(with_value(lines, f"{BASELINES}.baselines.probes.launch", [1])))
    source, play_to = playing(file)
    observations = play_to(10.0)
    assert len(observations) == 6
    assert source.problem is None
    assert source.baselines(observations[3]) == {}
    assert source.problem is not None
    assert "the baselines of observation" in source.problem


def test_what_the_screen_reads_is_checked_before_it_opens(lines: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    for place, value in (
        (f"{PROBE_SET}.backend", "rocm"),
        (f"{FIRST}.observation.engine.state", "asleep"),
        (f"{THIRD}.observation.wall_s", "soon"),
    ):
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


def padded(line: Any) -> bytes:
    return recordings.encoded(line)[:-1] + b" " * PART + b"}"


def probe_sets(lines: list[Any]) -> Iterator[bytes]:
    yield from (padded(lines[SET]) for _ in range(64))


def baselines(lines: list[Any]) -> Iterator[bytes]:
    yield from (padded(lines[number]) for _ in range(32) for number in (BASELINES, FIRST))


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
    tracemalloc.start()
    with suppress(RecordingError):
        replayed.read_all(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * MIB


def test_any_part_of_a_long_recording_is_read_without_what_is_before_it(
    lines: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "_POINT_BYTES", 1 << 17)
    file = tmp_path / "a.rec"
    many = [
        lines[SET],
        *(with_value([lines[FIRST]], "0.observation.wall_s", 1e9 + number)[0] for number in range(8_000)),
    ]
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
