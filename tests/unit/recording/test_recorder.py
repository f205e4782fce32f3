"""Recorder: what was written before a recording ended is readable, and no file without an observation is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from factories import recordings
from factories.full_disk import FullDisk
from factories.recordings import WALL_S, probe_set_of
from factories.traces import handmade_trace
from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board
from stallprobes.errors import RecordingError
from stallprobes.live.capture import capture
from stallprobes.machine import gpm
from stallprobes.machine.gpu_state import GpuSamples
from stallprobes.machine.telemetry import TelemetryField, TelemetryReading, TelemetrySnapshot
from stallprobes.model import Role
from stallprobes.recording import line_writer
from stallprobes.recording.observation import CUDA, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.records.rows import CALL
from stallprobes.traces.codec import MOST_ROWS
from stallprobes.traces.trace import Trace, TraceNames

EMPTY = Observation(
    wall_s=WALL_S,
    probe_set=ProbeSet(title="none", probes=(), backend=CUDA),
    engine=EngineStatus(EngineCondition.STARTING),
)


def record(path: Path, observations: int) -> Recorder:
    recorder = Recorder(path)
    for number in range(observations):
        recorder.put_blocking(structs.replace(EMPTY, wall_s=WALL_S + number), {})
    recorder.close(10.0)
    return recorder


def test_a_full_disk_is_a_sentence_and_what_was_written_before_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    with FullDisk(2000) as disk:
        disk.fill()
        recorder = record(file, 100)
    assert 5 < recorder.written < 99
    assert recorder.problem == (
        f"{file} cannot be written: File too large; the {recorder.written} observations before are readable"
    )
    assert recorder.written + recorder.dropped in (99, 100)
    found = Recording(file)
    assert (len(found), found.cut_off) == (recorder.written, True)
    assert len(list(found.play())) == recorder.written


def test_where_no_observation_fits_no_file_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    with FullDisk(150) as disk:
        disk.fill()
        recorder = record(file, 3)
    assert recorder.problem == f"{file} cannot be written: File too large"
    assert not file.exists()


def test_without_an_observation_there_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    recorder = Recorder(file)
    assert not file.exists()
    recorder.close()
    assert (recorder.problem, recorder.written, file.exists()) == (None, 0, False)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda folder: folder, "exists; a recording never overwrites a file"),
        (lambda folder: folder / "missing" / "a.rec", "cannot be written: the folder "),
        (lambda folder: folder / ("x" * 300), "cannot be written: File name too long"),
        (lambda folder: folder / "a\0b", "cannot be written: embedded null byte"),
        (lambda _folder: Path("/dev/full"), "exists; a recording never overwrites a file"),
    ],
    ids=["folder", "missing folder", "long name", "null byte", "device"],
)
def test_a_place_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, place: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(RecordingError) as caught:
        Recorder(place(tmp_path))
    assert str(caught.value).startswith(f"{place(tmp_path)} {words}")
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_the_format_cannot_hold_ends_the_recording_and_nobody_waits(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    odd = TelemetrySnapshot("GPU-1", 1, "live", None, {"power_w": TelemetryReading(object(), 1, None)})
    recorder = Recorder(file)
    recorder.put_blocking(EMPTY, {})
    for _ in range(300):
        recorder.put_blocking(structs.replace(EMPTY, telemetry=odd), {})
    recorder.close(10.0)
    assert recorder.written == 1
    assert recorder.problem is not None
    assert "cannot be written: TypeError" in recorder.problem
    assert len(Recording(file)) == 1


def test_a_disk_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    usual = line_writer.created

    def created(path: Path) -> object:
        if threading.current_thread().name == "recorder":
            answered.wait()
        return usual(path)

    monkeypatch.setattr(line_writer, "created", created)
    recorder = Recorder(tmp_path / "a.rec")
    recorder.put_blocking(EMPTY, {})
    recorder.close(0.01)
    assert recorder.problem == f"{tmp_path / 'a.rec'} is incomplete: the disk took longer than 0.01 s"
    answered.set()


def test_texts_of_drivers_and_programs_are_recorded_as_a_reader_accepts_them(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    recorder = Recorder(file)
    sentence = EngineStatus(EngineCondition.LOST, 1.0, "it ended\x1b[2J" + "x" * 10_000)
    recorder.put_blocking(structs.replace(EMPTY, engine=sentence, other_processes=("\udce9vil\x07",) * 2000), {})
    recorder.close()
    (found,) = Recording(file).play()
    assert found.engine.sentence == "it ended\ufffd[2J" + "x" * 10_000
    assert set(found.other_processes) == {"\ufffdvil\ufffd"}


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    recordings.record_every_kind(file)
    found = list(Recording(file).play())
    assert [one.engine.state for one in found] == [EngineCondition.READY] * 5 + [EngineCondition.LOST]
    assert found[1].telemetry is not None
    assert [one.name for one in found[1].telemetry.processes] == ["train", "\ufffd[2Jodd"]
    assert found[1].waiting == {"spin"}
    assert found[2].other_processes == ("train (pid 7)",)
    assert found[4].experiment
    (failure,) = found[4].probe_failures
    assert (failure.probe, failure.code, failure.fatal) == ("spin", 700, True)
    last = found[5].snapshot
    assert last is not None
    part = last.probes["launch"]
    assert (part.iterations, part.polled_ns, part.paused_ns, part.in_slots) == (205, 5000, 500, True)
    assert [histogram.count for histogram in part.channels.values()] == [205] * 6
    assert [one.timeline for one in found] == [False] * 4 + [True] * 2
    assert last.probes["spin"].error is not None


def test_a_capture_on_a_full_disk_raises_and_keeps_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    with FullDisk(3000) as disk:

        def stop() -> bool:
            # The memory of the board is a file as well, and exists by now.
            disk.fill()
            return False

        with pytest.raises(RecordingError, match=r"cannot be written: File too large; the \d+ observations before"):
            capture(probe_set, file, options=Options(profile="h200"), seconds=1.0, stop=stop)
    assert Recording(file).cut_off


def test_a_capture_that_is_stopped_at_once_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    assert capture(probe_set, file, options=Options(profile="h200"), seconds=1.0, stop=lambda: True).observations == 0
    assert not file.exists()


def test_the_gpus_values_with_and_without_aggressors_are_in_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    with virtual_sessions():
        capture(probe_set, file, options=Options(profile="h200"), seconds=2.0)
    samples = {False: GpuSamples(), True: GpuSamples()}
    for observation in Recording(file).play():
        if observation.snapshot is not None and observation.telemetry is not None:
            samples[observation.snapshot.probes["spin"].on].add(observation.telemetry)
    baseline, aggressors = samples[False].state(), samples[True].state()
    assert baseline.utilisation_percent == 0
    assert (aggressors.utilisation_percent or 0) > 80
    # The kernel has 16 of 132 SMs.
    assert (aggressors.sm_active_percent or 100) < 20


@pytest.mark.parametrize("gpm_counters", [True, False])
def test_a_capture_reads_the_gpm_counters_unless_it_is_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpm_counters: bool
) -> None:
    periods: list[float] = []

    class NoTelemetry:
        def __init__(self, _: str, *, fields: tuple[TelemetryField, ...]) -> None:
            periods.extend(one.period_s for one in fields if one.names)

        def start(self) -> None:
            pass

        stop = start

    monkeypatch.setattr("stallprobes.live.capture.Telemetry", NoTelemetry)
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    chosen = {"options": Options(profile="h200"), "uuid": "GPU-1", "gpm_counters": gpm_counters}
    with virtual_sessions():
        capture(probe_set, tmp_path / "a.rec", seconds=1.0, stop=lambda: True, **chosen)  # type: ignore[arg-type]
    assert [period_s == gpm.PERIOD_S for period_s in periods] == [gpm_counters]


class OneSuspension:
    """A suspension that is requested once, after ``after`` questions; ``on`` are the probes that ran in it."""

    def __init__(self, boards: list[Board], after: int) -> None:
        self._boards, self._left = boards, after
        self.on: list[str] | None = None

    @property
    def requested(self) -> bool:
        self._left -= 1
        return self._left == 0

    def suspend(self) -> None:
        (board,) = self._boards
        self.on = [name for name in board.layout.names if board[name].words.run]


def test_a_capture_whose_engine_was_stopped_has_an_observation_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, steps, usual = tmp_path / "a.rec", [0], VirtualSession.run_for

    def run_for(session: VirtualSession, seconds: float) -> None:
        steps[0] += 1
        stopped = steps[0] == 40
        # While the engine is stopped, the clock runs on.
        usual(session, seconds + 3.0 * stopped)
        session.stops += stopped

    monkeypatch.setattr(VirtualSession, "run_for", run_for)
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    with virtual_sessions():
        capture(probe_set, file, options=Options(profile="h200"), seconds=2.0)
    states = [one.engine.state for one in Recording(file).play()]
    assert len(states) == steps[0]
    assert [number for number, state in enumerate(states, 1) if state is EngineCondition.SILENT] == [40]


def test_a_capture_is_suspended_without_aggressors_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards: list[Board] = []
    usual = Board.create.__func__  # type: ignore[attr-defined]

    def create(cls: type[Board], *arguments: object) -> Board:
        boards.append(usual(cls, *arguments))
        return boards[-1]

    monkeypatch.setattr(Board, "create", classmethod(create))
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    victims = [probe.name for probe in probe_set.probes if probe.role is not Role.AGGRESSOR]
    aggressor = next(probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR)
    file = tmp_path / "a.rec"
    # The baseline takes at least 2 s, so that question 40 comes while the aggressors run.
    suspension = OneSuspension(boards, 40)
    with virtual_sessions():
        capture(probe_set, file, options=Options(profile="h200"), seconds=4.0, suspension=suspension)
    assert suspension.on == victims
    on = [one.snapshot.probes[aggressor].on for one in Recording(file).play() if one.snapshot is not None]
    changes = [state for state, before in zip(on[1:], on, strict=False) if state is not before]
    assert changes == [True, False, True, False]


TRACE = handmade_trace(entries()["d2d"].probe(), entries()["spin"].probe(), wall_s=WALL_S)


def long_trace(rows: int) -> Trace:
    """``TRACE`` with ``rows`` calls, of which each column differs in every row."""
    began = TRACE.begin_ns + np.cumsum(np.arange(rows) % 7)
    calls = np.zeros(rows, CALL)
    calls["iteration"], calls["measured"] = began % 1000, 1
    calls["began_ns"], calls["returned_ns"] = began, began + began % 11
    return TRACE.changed(calls=calls)


def random_trace(seed: int) -> Trace:
    """``TRACE`` with 200 calls that no earlier trace resembles."""
    lengths = np.random.default_rng(seed).integers(1, 50_000, (2, 200))
    began = TRACE.begin_ns + np.cumsum(lengths[0])
    calls = np.zeros(len(began), CALL)
    calls["began_ns"], calls["returned_ns"] = began, began + lengths[1]
    return TRACE.changed(calls=calls[began < TRACE.end_ns])


def test_a_trace_of_many_rows_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    recorder = Recorder(file)
    recorder.put_blocking(EMPTY, {})
    recorder.put_trace(long_trace(30_000))
    recorder.close(10.0)
    assert (recorder.traces, recorder.traces_dropped) == (1, 0)
    found = Recording(file).trace(0)
    assert 15_000 < found.row_count <= MOST_ROWS
    assert found.trigger is not None
    assert found.begin_ns <= found.trigger.began_ns


def test_a_line_is_never_longer_than_a_reader_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.rec"
    monkeypatch.setattr(line_writer, "LONGEST_TEXT_OF_LINE", 20_000)
    recorder = Recorder(file)
    recorder.put_blocking(EMPTY, {})
    recorder.put_trace(long_trace(5_000))
    many = TraceNames(dict.fromkeys(range(1000), "x" * 100))
    recorder.put_trace(TRACE.changed(names=many))
    recorder.close(10.0)
    assert (recorder.traces, recorder.traces_dropped) == (1, 1)
    assert 0 < Recording(file).trace(0).row_count < 2_500


def test_traces_take_a_limited_part_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.rec"
    monkeypatch.setattr(line_writer, "_MOST_TRACE_BYTES", 3000)
    recorder = Recorder(file)
    for number in range(10):
        recorder.put_blocking(structs.replace(EMPTY, wall_s=WALL_S + number), {})
        recorder.put_trace_blocking(random_trace(number))
    recorder.close(10.0)
    assert recorder.written == 10
    assert 1 < recorder.traces < 10
    assert recorder.traces + recorder.traces_dropped == 10
    assert len(Recording(file).traces()) == recorder.traces


def test_traces_lost_to_a_full_disk_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    with FullDisk(3000) as disk:
        disk.fill()
        recorder = Recorder(file)
        recorder.put_blocking(EMPTY, {})
        for number in range(20):
            recorder.put_trace_blocking(random_trace(number))
        recorder.close(10.0)
    assert recorder.problem is not None
    assert recorder.traces + recorder.traces_dropped in (19, 20)
    assert len(Recording(file).traces()) == recorder.traces


def test_a_full_queue_drops_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    usual = line_writer.created

    def created(path: Path) -> object:
        if threading.current_thread().name == "recorder":
            answered.wait()
        return usual(path)

    monkeypatch.setattr(line_writer, "created", created)
    recorder = Recorder(tmp_path / "a.rec")
    recorder.put_blocking(EMPTY, {})
    for _ in range(200):
        recorder.put_trace(TRACE)
    dropped = recorder.traces_dropped
    assert dropped >= 98
    answered.set()
    recorder.close(10.0)
    assert recorder.traces == 200 - dropped
