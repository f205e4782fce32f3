"""``replay FILE --json``: the document, and one sentence for a file that cannot be read."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import jsonschema
import pytest

from factories import recordings
from stallprobes.files import schemas
from stallscope.cli import main as cli

RECORDED = Path(__file__).parents[2] / "screen" / "data" / "stall.rec"


def replay(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["stallscope", "replay", str(file), "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code, out, err


def test_it_prints_the_verdicts_of_a_recording(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = replay(RECORDED, capsys, monkeypatch)
    document = json.loads(out)
    jsonschema.Draft202012Validator(schemas.schema("stallscope.replay/1")).validate(document)
    (verdict,) = document["verdicts"]
    assert (code, err, document["cut_off"]) == (0, "", False)
    assert (verdict["kind"], verdict["probe"], verdict["phase"], verdict["proof"]) == (
        "stalled",
        "d2d@secondary",
        "wait",
        "switching",
    )
    assert document["probe_sets"][0]["backend"] == "simulated"
    assert {one["probe"] for one in document["probe_sets"][0]["ranges"]} == {"d2d@secondary", "host"}


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


def test_it_lists_the_traces(traced: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = replay(traced, capsys, monkeypatch)
    document = json.loads(out)
    jsonschema.Draft202012Validator(schemas.schema("stallscope.replay/1")).validate(document)
    (listed,) = document["traces"]
    assert code == 0
    assert listed["delay_us"] == 1997.0
    assert (listed["probe"], listed["phase"], listed["lost"]) == ("launch", "start", 3)


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
    # A file is replaced only with --force; the JSON may be written as well.
    assert run(capsys, monkeypatch, traced, "--trace", path)[0] == 2
    code, out, _ = run(capsys, monkeypatch, traced, "--trace", path, "--force", "--json")
    assert code == 0
    assert len(json.loads(out)["traces"]) == 1


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


@pytest.mark.parametrize("share", [0.35, 0.6, 0.9, 0.999])
def test_a_truncated_recording_gives_what_it_holds_and_exits_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    file = tmp_path / "part.rec"
    data = RECORDED.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    code, out, err = replay(file, capsys, monkeypatch)
    document = json.loads(out)
    assert (code, document["cut_off"], document["damage"]) == (5, True, None)
    assert document["observations"] > 0
    assert err == f"stallscope: {file} is damaged or truncated; everything before that place was read\n"


@pytest.mark.parametrize("byte", [0.4, 0.7, 0.95])
def test_a_recording_with_a_wrong_byte_gives_what_comes_before_and_exits_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, byte: float
) -> None:
    file = tmp_path / "spoiled.rec"
    data = bytearray(RECORDED.read_bytes())
    data[int(len(data) * byte)] ^= 0xFF
    file.write_bytes(data)
    code, out, err = replay(file, capsys, monkeypatch)
    document = json.loads(out)
    assert (code, document["cut_off"], document["observations"] > 0) == (5, True, True)
    assert "damaged or truncated" in err


def test_damaged_content_ends_the_document_before_it_and_is_named(
    traced: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = recordings.lines_of(traced.read_bytes())
    whole = json.loads(replay(traced, capsys, monkeypatch)[1])
    lines[-1]["trace"]["trace"]["trigger"]["probe"] = 9
    traced.write_bytes(recordings.recording_of(lines))
    code, out, err = replay(traced, capsys, monkeypatch)
    document = json.loads(out)
    jsonschema.Draft202012Validator(schemas.schema("stallscope.replay/1")).validate(document)
    assert (code, document["cut_off"]) == (5, True)
    assert f"{traced} is damaged: trace 1: the trigger is no call of a probe" in document["damage"]
    assert err == f"stallscope: {document['damage']}; everything before that place was read\n"
    assert (document["observations"], document["verdicts"]) == (whole["observations"], whole["verdicts"])
    assert (len(whole["traces"]), document["traces"]) == (1, [])


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
    code, out, err = replay(file, capsys, monkeypatch)
    assert (code, out) == (2, "")
    assert err.startswith("stallscope: ")
    assert err.count("\n") == 1


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
