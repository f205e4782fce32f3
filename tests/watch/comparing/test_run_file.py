"""Files of watched runs: what is appended is read again, and other content is refused in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from factories.watch_moments import findings
from factories.watched_runs import NAMES, program_run, recorded_findings
from stallprobes.errors import FileNotWritten, RunFileError
from stallprobes.files import atomic
from stallprobes.watch.comparing import run_file, run_kind
from stallprobes.watch.comparing.compare import compare
from stallprobes.watch.division.parts import Part
from stallprobes.watch.report import document
from stallscope.report import runs_text
from stallscope.report.text import TextWriter

RUN = findings(8).changed(program=("python", "train.py"), exit_code=0)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The documents in a file."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_runs_are_appended_and_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "before.runs"
    for code in range(3):
        run_file.ready(path)
        run_file.append(RUN.changed(exit_code=code), path)
    assert [run.exit_code for run in run_file.load(path)] == [0, 1, 2]
    assert lines_of(path)[1] == document(RUN.changed(exit_code=1))
    assert run_kind.holds_runs(path)


@pytest.mark.parametrize("name", NAMES[::7])
def test_a_run_that_was_read_is_the_one_that_was_watched(name: str, tmp_path: Path) -> None:
    run = recorded_findings(name)
    run_file.append(run, tmp_path / "runs")
    (read,) = run_file.load(tmp_path / "runs")
    # The figures that documents round are not quite the same.
    assert compare([run], [read]).change == compare([run], [run]).change
    assert [each.kernels for each in read.processes[0].sequences] == [
        each.kernels for each in run.processes[0].sequences
    ]


def test_a_report_of_json_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(document(RUN), indent=1))
    (read,) = run_file.load(path)
    assert read.program == RUN.program
    before = path.read_bytes()
    with pytest.raises(RunFileError, match="is what `stallscope watch --json` wrote: name another file for --save"):
        run_file.append(RUN, path)
    assert path.read_bytes() == before


def test_two_programs_can_append_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    threads = [threading.Thread(target=run_file.append, args=(RUN, path)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(run_file.load(path)) == 8


def test_an_append_that_fails_leaves_the_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs"
    run_file.append(RUN, path)
    path.chmod(0o640)
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise FileNotWritten(f"{path} cannot be written: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "write", fail)
        with pytest.raises(RunFileError, match="No space left"):
            run_file.append(RUN, path)
    assert path.read_bytes() == before
    run_file.append(RUN, path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]


def test_an_empty_file_gets_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    path.touch()
    run_file.ready(path)
    run_file.append(RUN, path)
    assert len(run_file.load(path)) == 1


def changed(**values: Any) -> bytes:
    """A run's document with other members."""
    return json.dumps(document(RUN) | values).encode() + b"\n"


WHOLE = gzip.compress(changed())
CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty: save a run with `stallscope watch --save`"),
    "blank": (b" \n", "is empty"),
    "cut off": (WHOLE[: len(WHOLE) // 2], "is cut off: it ends within its compressed data; copy it again"),
    "cut off text": (changed()[:-500], "is cut off: its end is missing; copy it again"),
    "damaged": (WHOLE[:100] + b"\xff" * 50 + WHOLE[150:], "is damaged: its compressed data cannot be decompressed"),
    "newer": (
        changed(schema="stallscope.watch/4"),
        "has a run of schema version 4, .* reads version 3: upgrade it",
    ),
    "older": (changed(schema="stallscope.watch/2"), "has a run of schema version 2, .* save the runs again"),
    "a check": (b'{"schema": "stallscope.check/3"}', "is a saved check, not runs of a program: compare two checks"),
    "a diagnosis": (b'{"schema": "stallscope.doctor/1"}', "is another file of stallscope, not runs of a program"),
    "a recording": (b'{"format": "stallscope.recording"}', "is another file of stallscope, not runs of a program"),
    "text": (b"hello", "is not a file of watched runs: it is not valid JSON"),
    "other JSON": (b"[1, 2]", "is not a file of watched runs: the document: expected an object"),
    "an unknown member": (
        changed(more=1),
        "is damaged, or of another version of stallscope: the document: it has “more”, which is not expected here",
    ),
    "a wrong kind": (
        changed(duration_ns="long"),
        "is damaged, or of another version of stallscope: duration_ns: expected an integer",
    ),
    "a wrong second run": (changed() + b"nothing\n", "is damaged|is not a file of watched runs"),
    "not UTF-8": (b'{"schema": "stallscope.watch/3", "program": ["\xff"]}', "is damaged: it is not UTF-8|not UTF-8"),
    "deep": (b'{"schema": ' + b"[" * 100_000, "is not a file of watched runs: "),
    "many lines": (b"{}\n" * 2000, "is too large for a file of runs: it has more than 1000 lines"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_other_content_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    content, sentence = CONTENTS[name]
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RunFileError, match=sentence) as raised:
        run_file.load(path)
    assert "\n" not in str(raised.value)
    if content and name != "a wrong second run":
        for refused in (run_file.ready, lambda path: run_file.append(RUN, path)):
            if name not in ("an unknown member", "a wrong kind", "not UTF-8"):
                with pytest.raises(RunFileError):
                    refused(path)
        assert name in ("an unknown member", "a wrong kind", "not UTF-8") or path.read_bytes() == content


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document that holds a number."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[Any, Any]] = []
    for key, item in items:
        found += leaves(item) if not isinstance(item, int | float) else [(value, key)]
    return found


def test_files_of_any_numbers_are_compared_or_refused(tmp_path: Path) -> None:
    chance, path = Random(5), tmp_path / "runs"
    parts = {Part.HOST: 0.6, Part.KERNELS: 0.4}
    run = program_run(10_000_000, parts, lines={31: 0.6}, waits={40: 0.3})
    compared = 0
    for _ in range(400):
        text = document(run)
        places = leaves(text["processes"][0]["sequences"])
        for container, key in chance.sample(places, 2):
            container[key] = chance.choice((0, 1, 2**61, -1, 0.5))
        path.write_text(json.dumps(text) + "\n")
        try:
            (changed,) = run_file.load(path)
        except RunFileError:
            continue
        for sides in (([run], [changed]), ([changed], [run])):
            runs_text.show(TextWriter(io.StringIO(), width=80), compare(*sides, force=True))
            compared += 1
    assert compared > 100


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b" " * (3 << 20)))
    monkeypatch.setattr(run_kind, "LARGEST", 1 << 20)
    with pytest.raises(RunFileError, match="is too large for a file of runs: it has more than 1 MiB"):
        run_file.load(path)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "is a folder: name a file in it"),
        (os.mkfifo, "is neither a regular file nor a pipe that is open already"),
    ],
)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], None], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(RunFileError, match=sentence):
        run_file.load(path)
    assert not run_kind.holds_runs(path)


def test_a_full_file_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs"
    run_file.append(RUN, path)
    monkeypatch.setattr(run_file, "MOST_RUNS", 1)
    for refused in (run_file.ready, lambda path: run_file.append(RUN, path)):
        with pytest.raises(RunFileError, match="is full with 1 runs: name another file"):
            refused(path)
    assert len(run_file.load(path)) == 1
