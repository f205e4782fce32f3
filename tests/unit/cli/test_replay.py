"""``replay FILE --json``: the document, and one sentence for a file that cannot be read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import jsonschema
import pytest

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
        "d2d",
        "wait",
        "switching",
    )
    assert document["probe_sets"][0]["backend"] == "simulated"
    assert {one["probe"] for one in document["probe_sets"][0]["ranges"]} == {"d2d", "host"}


def test_a_truncated_recording_gives_what_it_holds_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "part.rec"
    data = RECORDED.read_bytes()
    file.write_bytes(data[: len(data) * 2 // 3])
    code, out, err = replay(file, capsys, monkeypatch)
    assert code == 0
    assert json.loads(out)["cut_off"] is True
    assert "truncated" in err


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
        damaged(b'{"quiet":{"d2d":[1]}}'),
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
