"""Record and replay: the same figures come back, and a file that was cut off still shows all that came before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from factories.recordings import WALL_S
from stallprobes.errors import RecordingError
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import Channel, Phase
from stallprobes.recording.observation import GpuName
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.recording.recording_format import VERSION
from stallscope.tui.sources.replay import ReplaySource

WAIT = Channel(Phase.WAIT)


def seen(recording: Recording, number: int = 0) -> Analyzer:
    frames = list(recording.play(number))
    analyzer = Analyzer(frames[0].probe_set, baselines=recording.baselines(len(recording) - 1))
    for observation in frames:
        analyzer.feed(observation)
    return analyzer


def test_a_replay_tells_the_same_verdict(stall: Recording) -> None:
    log = seen(stall).monitor_view("d2d@secondary").log
    assert [entry.verdict.kind for entry in log] == ["stalled"]
    assert log[0].verdict.phase is Phase.WAIT
    assert "time-slice" in log[0].text
    assert log[0].ended_s is not None
    assert 2.5 < log[0].ended_s - log[0].began_s < 4.5


def test_it_keeps_bench_and_times(stall: Recording) -> None:
    first = next(stall.play())
    assert first.probe_set.pattern == "secondary-context-d2d"
    assert [probe.name for probe in first.probe_set.probes] == ["d2d@secondary", "spin", "host"]
    assert first.probe_set.probes[1].program.proof is not None
    assert first.wall_s == pytest.approx(WALL_S, abs=0.2)
    assert stall.seconds == pytest.approx(7.5, abs=2)
    assert not stall.cut_off


def test_all_gpus_come_back(stall: Recording, tmp_path: Path) -> None:
    first = next(stall.play())
    probe_set = structs.replace(first.probe_set, gpus=(GpuName("A", 0), GpuName("A", 1)))
    written = Recorder(tmp_path / "a.rec")
    written.put_blocking(structs.replace(first, probe_set=probe_set), {})
    written.close()
    again = next(Recording(tmp_path / "a.rec").play()).probe_set
    assert (again.gpus, again.details) == (probe_set.gpus, probe_set.details)


def test_figures_between_two_frames_do_not_depend_on_where_reading_began(stall: Recording) -> None:
    def window(start: int) -> object:
        frames = list(stall.play(start))
        early, late = (f.snapshot for f in (frames[30 - start], frames[40 - start]))
        assert early is not None
        assert late is not None
        return late.minus(early)["d2d@secondary"].channels[WAIT].counts.tolist()

    assert window(0) == window(25)


def test_cut_off_anywhere_it_shows_all_that_came_before(stall_file: Path, stall: Recording, tmp_path: Path) -> None:
    data = stall_file.read_bytes()
    lengths = []
    for share in (0.35, 0.6, 0.9, 0.999):
        file = tmp_path / f"{share}"
        file.write_bytes(data[: int(len(data) * share)])
        part = Recording(file)
        assert part.cut_off
        lengths.append(len(part))
        assert len(list(part.play())) == len(part)
    assert lengths == sorted(lengths)
    assert lengths[-1] >= len(stall) - 2


def test_a_spoiled_middle_shows_what_came_before(stall_file: Path, tmp_path: Path) -> None:
    data = bytearray(stall_file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = b"\xff" * 64
    file = tmp_path / "spoiled"
    file.write_bytes(bytes(data))
    part = Recording(file)
    assert part.cut_off
    assert list(part.play())


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hello", b"{}\n", b'{"format": "other", "version": 1}\n', b"\x00" * 99]
)
def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(RecordingError, match=r"not a recording|is empty: name a file"):
        Recording(file)


def test_a_newer_version_is_not_guessed_at(stall_file: Path, tmp_path: Path) -> None:
    head, _, body = stall_file.read_bytes().partition(b"\n")
    file = tmp_path / "x"
    file.write_bytes(json.dumps({**json.loads(head), "version": VERSION + 1}).encode() + b"\n" + body)
    with pytest.raises(RecordingError, match="upgrade"):
        Recording(file)


def test_a_recording_without_a_frame_is_refused(stall_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(stall_file.read_bytes().partition(b"\n")[0] + b"\n")
    with pytest.raises(RecordingError, match="no observation"):
        Recording(file)


def test_replay_gives_each_frame_once_and_stands_still_when_paused(stall: Recording) -> None:
    now = [100.0]
    replay = ReplaySource(stall, clock=lambda: now[0])
    replay.start()
    taken = 0
    while taken < len(stall):
        now[0] += 0.25
        before, taken = taken, taken + len(replay.observations())
        assert taken - before <= 4
        assert now[0] < 200
    assert replay.observations() == []
    replay.seek(1.0)
    assert replay.restarted
    replay.pause()
    at = replay.at_s
    now[0] += 50
    assert replay.at_s == at
    replay.pause()
    now[0] += 1
    assert replay.at_s == pytest.approx(at + 1)
    replay.seek(-3)
    assert replay.at_s == 0
    replay.seek(1e9)
    assert replay.at_s == stall.seconds
