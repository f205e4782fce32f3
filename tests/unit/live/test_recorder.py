"""Recorder: what was written before a recording ended is readable, and no file without an observation is left."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from factories import recordings
from factories.full_disk import FullDisk
from factories.recordings import WALL_S, probe_set_of
from stallprobes.engine.backend import Options
from stallprobes.errors import RecordingError
from stallprobes.live import recorder as recorders
from stallprobes.live.capture import capture
from stallprobes.live.observation import CUDA, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.live.recorder import Recorder
from stallprobes.live.recording import Recording
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot

EMPTY = Observation(WALL_S, ProbeSet("none", (), CUDA), EngineStatus(EngineCondition.STARTING))


def record(path: Path, observations: int) -> Recorder:
    recorder = Recorder(path)
    for number in range(observations):
        recorder.put_blocking(replace(EMPTY, wall_s=WALL_S + number), {})
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
        (lambda folder: folder / "missing" / "a.rec", "cannot be written: No such file or directory"),
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
    reading = TelemetryReading(math.nan, 1, None)
    odd = TelemetrySnapshot("GPU-1", 1, "live", None, MappingProxyType({"power_w": reading}))
    recorder = Recorder(file)
    recorder.put_blocking(EMPTY, {})
    for _ in range(300):
        recorder.put_blocking(replace(EMPTY, telemetry=odd), {})
    recorder.close(10.0)
    assert recorder.written == 1
    assert recorder.problem is not None
    assert "cannot be written: ValueError" in recorder.problem
    assert len(Recording(file)) == 1


def test_a_disk_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    usual = recorders._created

    def created(path: Path) -> object:
        if threading.current_thread().name == "recorder":
            answered.wait()
        return usual(path)

    monkeypatch.setattr(recorders, "_created", created)
    recorder = Recorder(tmp_path / "a.rec")
    recorder.put_blocking(EMPTY, {})
    recorder.close(0.01)
    assert recorder.problem == f"{tmp_path / 'a.rec'} is incomplete: the disk took longer than 0.01 s"
    answered.set()


def test_texts_of_drivers_and_programs_are_recorded_as_a_reader_accepts_them(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    recorder = Recorder(file)
    sentence = EngineStatus(EngineCondition.LOST, 1.0, "it ended\x1b[2J" + "x" * 10_000)
    recorder.put_blocking(replace(EMPTY, engine=sentence, other_processes=("\udce9vil\x07",) * 2000), {})
    recorder.close()
    (found,) = Recording(file).play()
    assert found.engine.sentence.startswith("it ended\ufffd[2Jxxx")
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
    assert (part.iterations, part.polled_ns, part.pauses, part.in_slots) == (205, 5000, 5, True)
    assert [histogram.count for histogram in part.channels.values()] == [205] * 3
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
    assert capture(probe_set, file, options=Options(profile="h200"), seconds=1.0, stop=lambda: True) == 0
    assert not file.exists()
