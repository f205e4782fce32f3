"""Recordings of a watched program: what is read is what was written, from any moment, and damage is refused."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from factories import command_line
from factories.full_disk import FullDisk
from factories.watch_moments import moments, output, record
from stallprobes.errors import FileNotWritten, RecordingError
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot
from stallprobes.recording.recording import Recording
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.live import recorder as recorders
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchMoment
from stallprobes.watch.live.recorder import WatchRecorder
from stallprobes.watch.live.recording import LEAD, WatchRecording, is_watch_recording
from stallprobes.watch.report import document
from stallprobes.watch.sentences import call_text
from stallscope.cli.watching.session import finish_recording

SECONDS = 4


@pytest.fixture(autouse=True)
def closed_recordings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the recordings of a test: the collector would warn of an open file in the middle of another one."""
    opened: list[WatchRecording] = []
    usual = WatchRecording._read_first

    def noted(recording: WatchRecording) -> None:
        opened.append(recording)
        usual(recording)

    monkeypatch.setattr(WatchRecording, "_read_first", noted)
    yield
    for recording in opened:
        recording.close()


@pytest.fixture(scope="module")
def written() -> list[WatchMoment]:
    return moments(SECONDS, exit_code=3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, written: list[WatchMoment]) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "watch.rec"
    found = record(path, written)
    assert (found.problem, found.written) == ("", SECONDS)
    return path


def texts(found: WatchFindings) -> list[str]:
    return [call_text(call) for process in found.processes for call in process.slow_calls]


def test_the_last_moment_has_all_that_was_found(recorded: Path, written: list[WatchMoment]) -> None:
    recording = WatchRecording(recorded)
    assert (len(recording), recording.cut_off, recording.seconds) == (SECONDS, False, SECONDS - 1)
    last = recording.last()
    assert document(last.moment.findings) == document(written[-1].findings)
    assert last.moment.program == written[-1].program
    assert list(last.output) == output(SECONDS).lines


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 0, 2, 1), (2, 2, 3)])
def test_each_moment_is_as_it_was_in_any_order(
    recorded: Path, written: list[WatchMoment], order: tuple[int, ...]
) -> None:
    recording = WatchRecording(recorded)
    for number in order:
        found, expected = recording.at(number).moment, written[number]
        assert (found.at_ns, found.wall_s, found.program) == (expected.at_ns, expected.wall_s, expected.program)
        assert texts(found.findings) == texts(expected.findings)
        assert [(row.key, row.total, row.slow, row.lost_ns, row.begin_ns) for row in found.rows] == [
            (row.key, row.total, row.slow, row.lost_ns, row.begin_ns) for row in expected.rows
        ]


def test_the_last_second_of_a_row_is_the_difference_of_two_moments(recorded: Path) -> None:
    launches = next(row for row in WatchRecording(recorded).at(2).moment.rows if row.key.function == "cuLaunchKernel")
    assert (launches.total.count, launches.recent.count, round(launches.calls_per_s)) == (600, 200, 200)


def test_it_has_the_values_of_nvml(tmp_path: Path, written: list[WatchMoment]) -> None:
    readings = dict.fromkeys(NAMES, TelemetryReading())
    readings["utilisation_percent"] = TelemetryReading(97, 5, None)
    telemetry = TelemetrySnapshot("GPU-1", 7, "live", None, readings)
    recorder = WatchRecorder(tmp_path / "nvml.rec")
    recorder.put(written[0], output(1), telemetry)
    recorder.put(written[1], output(2))
    recorder.close()
    recording = WatchRecording(tmp_path / "nvml.rec")
    found = recording.at(0).telemetry
    assert found is not None
    assert (found["utilisation_percent"].value, found.state) == (97, "live")
    assert recording.at(1).telemetry is None


def test_a_line_has_only_the_calls_that_are_new_or_have_changed(recorded: Path) -> None:
    lines = [json.loads(text)["moment"] for text in lines_of(recorded) if text.startswith(b'{"moment"')]
    counts = [len(line["findings"]["processes"][0].get("slow_calls", ())) for line in lines]
    # Those of the last second, and a cause that has become known.
    assert counts[0] == 12
    assert all(count < 12 * (number + 1) for number, count in enumerate(counts[1:], 1))


def test_it_keeps_the_trace_of_the_slowest_call(recorded: Path) -> None:
    recording = WatchRecording(recorded)
    (entry,) = recording.traces()
    trace = recording.trace(entry.number)
    assert trace.trigger is not None
    assert trace.probes[trace.trigger.probe].name == "loader"
    assert trace.trigger_call() is not None
    assert set(trace.kernels.values()) == {"add"}


def test_a_seek_over_many_moments_reads_only_those_before_its_target(tmp_path: Path) -> None:
    one = moments(1)[0]
    many = [
        WatchMoment(one.at_ns + number * 10**9, one.wall_s + number, one.program, one.findings, one.rows)
        for number in range(2 * LEAD)
    ]
    record(tmp_path / "long.rec", many, traces=False)
    recording = WatchRecording(tmp_path / "long.rec")
    assert recording.number_at(45.5) == 45
    assert recording.at(2 * LEAD - 1).moment.at_ns == many[-1].at_ns
    assert recording.at(1).moment.at_ns == many[1].at_ns


def test_the_first_line_says_what_a_recording_is_of(recorded: Path, tmp_path: Path) -> None:
    assert is_watch_recording(recorded)
    (tmp_path / "text").write_text("[1]\n")
    for path in (tmp_path / "text", tmp_path / "none", tmp_path):
        assert not is_watch_recording(path)
    with pytest.raises(RecordingError, match="contains no observation"):
        Recording(recorded)
    with pytest.raises(RecordingError, match="is not a recording"):
        WatchRecording(tmp_path / "text")


def test_a_file_that_exists_is_not_replaced(recorded: Path) -> None:
    with pytest.raises(RecordingError, match="never overwrites"):
        WatchRecorder(recorded)


def test_without_a_moment_no_file_is_left(tmp_path: Path) -> None:
    recorder = WatchRecorder(tmp_path / "none.rec")
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_left_where_the_disk_has_no_room_for_a_moment(tmp_path: Path, written: list[WatchMoment]) -> None:
    path = tmp_path / "full.rec"
    recorder = WatchRecorder(path)
    with FullDisk(20) as disk:
        disk.fill()
        recorder.put(written[0], output(1))
    assert recorder.problem.startswith(f"{path} cannot be written: ")
    recorder.close()
    assert not path.exists()


def test_a_full_disk_is_said_and_what_was_written_is_readable(
    tmp_path: Path, written: list[WatchMoment], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "full.rec"
    recorder = WatchRecorder(path)
    recorder.put(written[0], output(1))

    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(recorder._lines, "_file", Full())
    recorder.put(written[1], output(2))
    assert recorder.problem == (f"{path} cannot be written: No space left on device; the 1 moment before is readable")
    recorder.put(written[2])
    recorder.close()
    assert len(WatchRecording(path)) == 1


def test_a_moment_that_no_reader_accepts_is_left_out_and_counted(tmp_path: Path, written: list[WatchMoment]) -> None:
    path = tmp_path / "odd.rec"
    recorder = WatchRecorder(path)
    recorder.put(written[0], output(1))
    (process, *_) = written[1].findings.processes
    odd = process.changed(slow_calls=tuple(call.changed(duration_ns=-1) for call in process.slow_calls))
    recorder.put(replace(written[1], findings=written[1].findings.changed(processes=(odd,))), output(2))
    recorder.put(written[2], output(3))
    recorder.close()
    assert (recorder.problem, recorder.written, recorder.left_out) == ("", 2, 1)
    assert recorder.left_out_text.startswith(f"1 moment is not in {path}: ")
    recording = WatchRecording(path)
    assert len(recording) == 2
    # What came since the moment before is in the next one.
    last = recording.last()
    assert texts(last.moment.findings) == texts(written[2].findings)
    assert list(last.output) == output(3).lines


def test_a_recording_of_which_every_moment_is_left_out_is_not_there(
    tmp_path: Path, written: list[WatchMoment], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.rec"
    recorder = WatchRecorder(path)
    recorder.put(replace(written[0], at_ns=-1))
    live = SimpleNamespace(moment=replace(written[1], at_ns=-1))
    with pytest.raises(FileNotWritten, match=r"^--record: 2 moments are not in .*\.$"):
        finish_recording(cast(LiveProgram, live), recorder)
    assert not path.exists()
    recorder = WatchRecorder(path)
    recorder.put(written[0])
    finish_recording(cast(LiveProgram, live), recorder)
    assert "1 moment is not in" in capsys.readouterr().err
    assert len(WatchRecording(path)) == 1


def test_a_moment_that_is_too_large_goes_without_calls_and_output(
    tmp_path: Path, written: list[WatchMoment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "LONGEST_TEXT_OF_LINE", 9000)
    recorder = WatchRecorder(tmp_path / "large.rec")
    recorder.put(written[0], output(1))
    recorder.close()
    assert recorder.problem == ""
    found = WatchRecording(tmp_path / "large.rec").at(0)
    assert (texts(found.moment.findings), found.output) == ([], ())
    assert found.moment.rows


def test_a_truncated_file_keeps_what_was_before(recorded: Path, tmp_path: Path) -> None:
    data = recorded.read_bytes()
    (tmp_path / "cut.rec").write_bytes(data[: len(data) * 2 // 3])
    recording = WatchRecording(tmp_path / "cut.rec")
    assert recording.cut_off
    assert 0 < len(recording) < SECONDS
    recording.last()


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes().partition(b"\n")[2]
    return [line.partition(b" ")[2] for line in zlib.decompress(data).split(b"\n") if line]


def rewritten(recorded: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """``recorded`` with ``change`` applied to each moment, and right checksums."""
    head = recorded.read_bytes().partition(b"\n")[0]
    out = []
    for text in lines_of(recorded):
        value = json.loads(text)
        if "moment" in value:
            change(value["moment"])
        line = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        out.append(f"{zlib.crc32(line):08x} ".encode() + line + b"\n")
    path.write_bytes(head + b"\n" + zlib.compress(b"".join(out)))
    return path


def test_what_comes_before_a_damaged_moment_is_the_report(recorded: Path, tmp_path: Path) -> None:
    moments: list[Any] = []

    def damage_last(moment: Any) -> None:
        moments.append(moment)
        if len(moments) == SECONDS:
            moment.update(at_ns=-1)

    file = rewritten(recorded, tmp_path / "damaged.rec", damage_last)
    recording = WatchRecording(file)
    before = recording.at(SECONDS - 2).moment.wall_s
    assert recording.damage is None
    assert recording.last().moment.wall_s == before
    assert f"{file} is damaged: moment {SECONDS}" in (recording.damage or "")
    done = command_line.run("replay", str(file), "--json")
    assert done.returncode == 5
    assert done.stderr == f"stallscope: {recording.damage}; everything before that place was read\n"
    assert json.loads(done.stdout)["schema"] == "stallscope.watch/3"


def process_of(line: Any) -> Any:
    return line["findings"]["processes"][0]


def row_of(line: Any) -> Any:
    return process_of(line)["threads"][0]["rows"][0]


HOSTILE: dict[str, Callable[[Any], None]] = {
    "a negative time": lambda line: line.update(at_ns=-1),
    "a count as text": lambda line: process_of(line).update(pid="1"),
    "true as a count": lambda line: process_of(line).update(calls=True),
    "a huge count": lambda line: process_of(line).update(calls=2**80),
    "an unknown state": lambda line: process_of(line).update(state=99),
    "true as a state": lambda line: process_of(line).update(state=True),
    "an escape sequence": lambda line: process_of(line).update(name="\x1b[2J"),
    "a missing name": lambda line: process_of(line).pop("name"),
    "a bucket that is none": lambda line: row_of(line).update(total=[200, 9999, 1]),
    "a histogram of one part": lambda line: row_of(line).update(total=[200, 1]),
    "no list of rows": lambda line: process_of(line)["threads"][0].update(rows=3),
    "output that is no list": lambda line: line.update(output="text"),
    "a culprit without its call": lambda line: process_of(line).update(
        slow_calls=[{**process_of(line)["slow_calls"][0], "cause": "pageable-copy", "evidence": {}}]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_recorder_writes_is_refused_in_a_sentence(recorded: Path, tmp_path: Path, name: str) -> None:
    path = rewritten(recorded, tmp_path / "hostile.rec", HOSTILE[name])
    with pytest.raises(RecordingError, match=r"hostile\.rec is damaged: moment 1: .*; copy it again, or record again"):
        WatchRecording(path)


def test_no_change_of_a_value_leads_to_anything_but_a_sentence(recorded: Path, tmp_path: Path) -> None:
    chosen = random.Random(13)
    for number in range(60):

        def change(line: Any) -> None:
            at = line
            while isinstance(at, (dict, list)) and at:
                keys = list(at) if isinstance(at, dict) else range(len(at))
                key = chosen.choice(list(keys))
                if not isinstance(at[key], (dict, list)) or chosen.random() < 0.1:
                    at[key] = chosen.choice([None, -1, 2**70, "", "\x9b", [], {}, 1.5, True, [[0, 1]]])
                    return
                at = at[key]

        path = rewritten(recorded, tmp_path / f"{number}.rec", change)
        try:
            recording = WatchRecording(path)
            for one in range(len(recording)):
                moment = recording.at(one).moment
                document(moment.findings)
                texts(moment.findings)
        except RecordingError as error:
            assert "is damaged" in str(error)  # noqa: PT017
