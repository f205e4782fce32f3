"""``replay`` of probes without the screen: their traces, and one sentence for what cannot be written or read."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from factories import recordings
from stallscope.cli import main as cli

RECORDED = Path(__file__).parents[2] / "screen" / "data" / "stall.rec"


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A small recording with a trace."""
    file = tmp_path / "traced.rec"
    recordings.record_every_kind(file)
    return file


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["stallscope", "replay", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code or 0, int)
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_it_writes_the_traces_for_perfetto(
    traced: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = traced.parent / name
    code, out, err = run(capsys, monkeypatch, traced, "--trace", path)
    assert (code, out) == (0, "")
    assert err == f"stallscope: 1 trace written to {path}; open it in Perfetto or chrome://tracing\n"
    content = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    document = json.loads(content)
    assert len(document["traceEvents"]) > 10
    assert document["otherData"]["recorded_at"].startswith("2027-01-15T08:00:01")
    assert [one["calls"] for one in document["otherData"]["traces"]] == [2]
    # A file is replaced only with --force.
    assert run(capsys, monkeypatch, traced, "--trace", path)[0] == 2
    assert run(capsys, monkeypatch, traced, "--trace", path, "--force")[0] == 0


def test_several_traces_have_titles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = tmp_path / "a.rec", tmp_path / "out.json"
    recordings.record_every_kind(file)
    lines = recordings.lines_of(file.read_bytes())
    file.write_bytes(recordings.recording_of([*lines, lines[-1]]))
    code, _, err = run(capsys, monkeypatch, file, "--trace", path)
    assert code == 0
    assert "2 traces written" in err
    titles = [one["title"] for one in json.loads(path.read_bytes())["otherData"]["traces"]]
    assert titles == ["08:00:02 launch 2.00 ms"] * 2


def test_a_recording_without_a_trace_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    sentence = f"stallscope: --trace: {RECORDED} has no trace; record with --timeline\n"
    assert run(capsys, monkeypatch, RECORDED, "--trace", path) == (2, "", sentence)
    assert not path.exists()


def test_a_damaged_trace_is_one_sentence_and_no_file_is_left(
    traced: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = recordings.lines_of(traced.read_bytes())
    lines[-1]["trace"]["trace"]["trigger"]["probe"] = 9
    traced.write_bytes(recordings.recording_of(lines))
    path = traced.parent / "out.json"
    code, out, err = run(capsys, monkeypatch, traced, "--trace", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "trace 1: the trigger is no call of a probe" in err
    assert [one.name for one in traced.parent.iterdir()] == ["traced.rec"]


def damaged(content: bytes) -> bytes:
    """A recording with a good checksum whose lines are ``content``."""
    head, _, body = RECORDED.read_bytes().partition(b"\n")
    first = zlib.decompressobj().decompress(body).split(b"\n")[0]
    line = f"{zlib.crc32(content):08x} ".encode() + content
    return head + b"\n" + zlib.compress(first + b"\n" + line + b"\n")


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"hello",
        damaged(b'{"f":{"w":1,"e":["ready",0,""],"s":{"at":1,"state":1,"beat":1,"p":{}}}}'),
        damaged(b'{"f":[]}'),
        damaged(b'{"quiet":{"d2d@secondary":[1]}}'),
        damaged(b"[" * 100_000),
        damaged(b'{"later":"version"}'),
    ],
    ids=["missing", "empty", "other", "no-probes", "list", "baseline", "nested", "no-observation"],
)
def test_a_file_that_is_no_recording_gives_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    file = tmp_path / "x.rec"
    if content is not None:
        file.write_bytes(content)
    for words in (("--json",), ("--trace", tmp_path / "out.json")):
        code, out, err = run(capsys, monkeypatch, file, *words)
        assert (code, out) == (2, "")
        assert err.startswith("stallscope: ")
        assert err.count("\n") == 1


def test_json_of_probes_says_what_to_use_instead_before_anything_is_written(
    traced: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, traced, "--json", "--trace", traced.parent / "out.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"stallscope: --json: {traced} is not a file that `stallscope watch --record` wrote; ")
    assert "`stallscope replay` without --json" in err
    assert "`stallscope run --json`" in err
    assert [one.name for one in traced.parent.iterdir()] == ["traced.rec"]


def test_traces_of_a_truncated_recording_are_said_to_be_the_first_ones(
    traced: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = traced.parent / "out.json", traced.read_bytes()
    traced.write_bytes(data[:-4])
    code, _, err = run(capsys, monkeypatch, traced, "--trace", path)
    assert code in (2, 5)
    assert "damaged or truncated" in err
    traced.write_bytes(data[: len(data) // 2])
    sentence = f"stallscope: --trace: {traced} has no trace before the place where it is damaged or truncated\n"
    assert run(capsys, monkeypatch, traced, "--trace", path, "--force") == (2, "", sentence)
