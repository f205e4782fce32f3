"""A check as a file: what is saved comes back to the last count, and whatever else is read is refused in a sentence."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from factories import documents, host_checks, matrices
from factories.verdicts import verdict
from stallprobes.errors import CheckFileError, StallprobesError
from stallprobes.files import schemas
from stallprobes.files.codec import Document
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import check_file
from stallprobes.matrix import document as check_document
from stallprobes.matrix.matrix import HostStatus, Matrix, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.verdict import Proof, Verdict

VALIDATOR = documents.validator(check_document.CHECK_SCHEMA)


def small() -> Matrix:
    """Four cells, one of them starved, with few calls: a short document."""
    matrix = matrices.made_up(1, rows=matrices.ROWS[:2], columns=matrices.COLUMNS[:2], calls=20, repeats=1)
    return host_checks.changed(matrix, host_checks.starved_cell(host_checks.SPIN))


DOCUMENT: dict[str, Any] = documents.of_check(small())
TEXT = json.dumps(DOCUMENT)


def document() -> Any:
    """A copy of DOCUMENT to be changed."""
    return json.loads(TEXT)


def refused(path: Path, content: bytes | str) -> str:
    """What is said of a file with this content, one sentence that begins with its name."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckFileError) as caught:
        check_file.load(path)
    said = str(caught.value)
    assert said.startswith(f"{path} ")
    assert "\n" not in said
    assert len(said) < len(str(path)) + 300
    return said.removeprefix(f"{path} ")


def spoiled(change: str, value: object) -> str:
    """The document with another value at a place told as ``cells.0.status``."""
    found = document()
    *way, last = change.split(".")
    place: Any = found
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    "matrix",
    [
        matrices.made_up(1),
        host_checks.every_status(),
        matrices.made_up(2, calls=0).changed(cells={}, rows=(), columns=()),
        host_checks.host(3).changed(backend="simulated", profile="made up", sim_seed=7, seed=-5, quick=True),
    ],
    ids=["plain", "everything", "empty", "simulated"],
)
def test_what_is_saved_comes_back_to_the_last_count(matrix: Matrix, tmp_path: Path) -> None:
    told = documents.of_check(matrix)
    VALIDATOR.validate(told)
    check_file.save(matrix, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == told
    again = check_file.load(tmp_path / "a.json")
    assert documents.of_check(again) == told
    for key, cell in matrix.cells.items():
        assert again.cells[key].channels == cell.channels
        assert dict(again.cells[key].baseline) == dict(cell.baseline)
        assert again.cells[key].kind == cell.kind
    assert (again.rows, again.columns, again.hosts) == (matrix.rows, matrix.columns, matrix.hosts)


def test_what_a_verdict_holds_comes_back(tmp_path: Path) -> None:
    matrix = small()
    cell = matrix.cells[host_checks.SPIN]
    full = verdict("slower", ratio=2.0).changed(range_ns=(4500.0, 12700.0), detectable=2.2, proof=Proof.RULE)
    check_file.save(host_checks.changed(matrix, cell.changed(verdicts=(full,))), tmp_path / "a.json")
    assert check_file.load(tmp_path / "a.json").cells[host_checks.SPIN].verdicts == (full,)


def test_figures_are_those_of_the_histograms_and_not_believed_when_read(tmp_path: Path) -> None:
    matrix = host_checks.every_status()
    told = documents.of_check(matrix)
    number = list(matrix.cells).index(host_checks.SPIN)
    times = matrix.cells[host_checks.SPIN].ratio(Phase.CALL, Quantile.P50)
    assert times is not None
    found = told["cells"][number]["figures"]["call"]
    assert (found["p50_ns"], found["ratio_p50"]) == (round(times.now_ns), round(times.ratio, 3))
    assert found["calls"] == matrix.cells[host_checks.SPIN].channels[matrices.CALL].count
    before = json.dumps(told)
    found["p50_ns"] = 10**9
    (tmp_path / "a.json").write_text(json.dumps(told))
    assert documents.of_check(check_file.load(tmp_path / "a.json")) == json.loads(before)


def test_the_schema_says_what_every_key_is_for() -> None:
    schema = schemas.schema(check_document.CHECK_SCHEMA)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"enum": [check_document.CHECK_SCHEMA]}


def test_what_no_json_or_terminal_takes_is_replaced_when_saved(tmp_path: Path) -> None:
    odd = {
        "gpu": "A\x1b[2J",
        "environment": {"X": "\udcff"},
        "load": math.nan,
        "list": (1, 2),
        "µ": "×",
    }
    check_file.save(matrices.made_up(1).changed(fingerprint=odd), tmp_path / "a.json")
    assert check_file.load(tmp_path / "a.json").fingerprint == {
        "gpu": "A\ufffd[2J", "environment": {"X": "\ufffd"}, "load": None, "list": [1, 2], "µ": "×",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"[1, 2]", "is not a check: the document: expected an object, got a list"),
        (b"null", "is not a check: the document: expected an object, got null"),
        (b'{"a": 1}', "is not a check of stallscope"),
        (b'{"schema": ["stallscope.check/3"]}', "is not a check of stallscope"),
        (b"hello", "is not a check: it is not valid JSON"),
        (b"\x7fELF\x02\xff", "is not a check: it is not valid JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "byte order mark"),
        (b"\x1f\x8b", "is cut off: it ends within its compressed data"),
        (b"\x1f\x8b\x08\x00", "is cut off: it ends within its compressed data"),
        (b"\x1f\x8b" + b"\xff" * 30, "is damaged: its compressed data cannot be decompressed"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b"hello", mtime=0), "is not a check: it is not valid JSON"),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "is not a check: it is not valid JSON"),
        (gzip.compress(b"{}", mtime=0) + b"more", "is damaged: its compressed data cannot be decompressed"),
        (gzip.compress(b'{"schema": "stallscope.check/4"}', mtime=0), "upgrade"),
        (gzip.compress(b'{"format": "stallscope.recording", "version": 1}', mtime=0), "is a recording"),
        (b'{"schema": "stallscope.run/1"}', "`stallscope run --json` writes, not a check"),
        (b'{"schema": "stallscope.doctor/1"}', "`stallscope doctor --json` writes, not a check"),
        (b'{"format": "stallscope.recording", "version": 1}\nx\x9c\xff', "is a recording"),
        (b'{"schema": "stallscope.check/4"}', "schema version 4, but this stallscope reads version 3: upgrade"),
        (b'{"schema": "stallscope.check/' + b"9" * 50 + b'"}', "upgrade"),
        (b'{"schema": "stallscope.check/0"}', "is not a check"),
        (b'{"schema": "stallscope.check/x"}', "is not a check"),
        (
            b'{"schema": "stallscope.check/1"}',
            "reads version 3: save the check again",
        ),
        (b'{"schema": "stallscope.check/3"}', "damaged: the document: it has no “backend”"),
        (b"[" * 200_000, "is not a check: the document: expected an object"),
        (b'{"a":' * 200_000, "is not a check: the document: it has “a”, which is not expected here"),
        (b'{"fingerprint": ' + b"[" * 200_000, "is not a check: fingerprint: expected an object, got a list"),
        (b'{"fingerprint": {"a": ' + b"[" * 200_000, "is not a check: it is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not a check of stallscope"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_check_is_refused_in_a_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path / "a.json", content)


CHANNEL = "cells.0.repeats.0.channels.call"
TOP = 2**53


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("seconds", math.nan, "it is not valid JSON"),
        ("seconds", math.inf, "it is not valid JSON"),
        ("seconds", -1, "seconds: expected a number >= 0.0"),
        ("seconds", True, "seconds: expected a number, got true or false"),
        ("seconds", 10**400, "seconds: number out of range"),
        ("seed", 1.0, "seed: expected an integer, got a number"),
        ("repeats", False, "repeats: expected an integer, got true or false"),
        ("quick", 1, "quick: expected true or false, got an integer"),
        ("program", None, "program: expected a string, got null"),
        ("program", "\x1b[2J", "program: expected a string without control characters"),
        ("program", "\ud800", "it is not valid JSON"),
        ("started_at", "yesterday", "started_at is not an ISO 8601 time"),
        ("started_at", "2026-11-21T10:00:00", "started_at is not an ISO 8601 time"),
        ("backend", "rocm", "backend: invalid value 'rocm'"),
        ("fingerprint", [], "fingerprint: expected an object, got a list"),
        ("hosts", {"": {}}, "hosts: in a key expected a string of length >= 1"),
        ("hosts", {"a": 1}, "hosts[...]: expected an object, got an integer"),
        ("rows.1.name", "launch", "rows has a duplicate name"),
        ("columns.1.name", "quiet", "columns has a duplicate name"),
        ("rows.0.name", "", "rows has an empty name"),
        ("columns.1.aggressors", "spin", "columns[1].aggressors: expected a list, got a string"),
        ("cells", {}, "cells: expected a list, got an object"),
        ("cells.0", 3, "cells[0]: expected an object, got an integer"),
        ("cells.0.row", "nobody", "cells[0].row is not among those the check lists"),
        ("cells.0.column", ["quiet"], "cells[0].column: expected a string, got a list"),
        ("cells.0.column", "spin", "cells[1] is a second cell of its row and column"),
        ("cells.0.status", "fine", "cells[0].status: invalid value 'fine'"),
        ("cells.0.status", None, "cells[0].status: expected a string, got null"),
        ("cells.0.more", 1, "cells[0]: it has “more”, which is not expected here"),
        ("cells.0.figures", None, "cells[0].figures: expected an object, got null"),
        ("cells.0.in_flight_ns", -1, "cells[0].in_flight_ns: expected an integer >= 0"),
        ("cells.0.repeats.0.host", "node-a", "names the host “node-a”, which is not among the hosts"),
        ("cells.0.repeats.0.calls", -1, "calls: expected an integer >= 0"),
        ("cells.0.repeats.0.channels", {"cal": {"max_ns": 0, "histogram": []}}, "cells[0] has the channel “cal"),
        ("cells.0.repeats.0.channels", {"call:": {"max_ns": 0, "histogram": []}}, "channel “call:”, which is none"),
        (CHANNEL, {}, "channels[...]: it has no “max_ns”"),
        (f"{CHANNEL}.max_ns", -1, "channels[...].max_ns: expected an integer >= 0"),
        (f"{CHANNEL}.max_ns", 5, "a max_ns below its highest bucket"),
        (f"{CHANNEL}.histogram", None, "histogram: expected a list, got null"),
        (f"{CHANNEL}.histogram.0", [64, 1, 1], "histogram[0]: expected a list of length 2"),
        (f"{CHANNEL}.histogram.0", [64, -1], "histogram[0][1]: expected an integer >= 1"),
        (f"{CHANNEL}.histogram.0", [64, 1.0], "histogram[0][1]: expected an integer, got a number"),
        (f"{CHANNEL}.histogram.0", [64, True], "histogram[0][1]: expected an integer, got true"),
        (f"{CHANNEL}.histogram.0", [64, 0], "histogram[0][1]: expected an integer >= 1"),
        (f"{CHANNEL}.histogram.0", [64, TOP + 1], "expected an integer <= 9007199254740992"),
        (f"{CHANNEL}.histogram.0", [64, TOP], "counts above 2**53 in total"),
        (f"{CHANNEL}.histogram.0", [129, 1], "a bound that is not a bucket's lower bound"),
        (f"{CHANNEL}.histogram.0", [2**40, 1], "buckets that do not ascend"),
        ("cells.3.verdicts.0.kind", "bad", "kind: invalid value 'bad'"),
        ("cells.3.verdicts.0.phase", "pause", "phase: invalid value 'pause'"),
        ("cells.3.verdicts.0.ratio", "1", "ratio: expected a number or null, got a string"),
        ("cells.3.verdicts.0.range_ns", [1], "range_ns: expected a list of length 2"),
        ("cells.3.verdicts.0.proof", "guess", "proof: invalid value 'guess'"),
        ("cells.3.verdicts.0.host", "node-a", "names the host “node-a”, which is not among the hosts"),
        ("cells.0.hosts", [{"host": "node-a", "status": "ok", "reason": ""}], "cells[0] names the host “node-a”"),
        ("timeline", 0, "timeline: expected true or false, got an integer"),
        ("spread", 1.5, "spread: expected an object or null, got a number"),
    ],
)  # fmt: skip
def test_a_check_that_was_tampered_with_is_refused_with_the_place(
    where: str, value: object, said: str, tmp_path: Path
) -> None:
    assert said in refused(tmp_path / "a.json", spoiled(where, value))


def test_counts_of_a_cell_that_no_sum_can_hold_are_refused(tmp_path: Path) -> None:
    found = document()
    for channel in ("call", "wait"):
        found["cells"][0]["repeats"][0]["channels"][channel] = {"max_ns": 64, "histogram": [[64, TOP]]}
    assert "cells[0] has counts above 2**53 in total" in refused(tmp_path / "a.json", json.dumps(found))


def test_a_number_beyond_every_float_is_refused(tmp_path: Path) -> None:
    text = json.dumps(DOCUMENT).replace('"pace_ns": 50000', '"pace_ns": 1e999')
    assert "number out of range" in refused(tmp_path / "a.json", text)


def test_every_missing_key_is_noticed(tmp_path: Path) -> None:
    free = (DOCUMENT["fingerprint"],)
    kinds: tuple[type[Document], ...] = (check_document.WholeCheck, check_document.CheckCell, HostStatus, Verdict)
    optional = {each.name for kind in kinds for each in structs.fields(kind) if not each.required}

    def places(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict) and not any(value is one for one in free):
            yield value
            for key, item in value.items():
                if key not in ("figures", "detectable", "channels", "before", "after"):
                    yield from places(item)
        elif isinstance(value, list):
            for item in value[:1]:
                yield from places(item)

    for place in list(places(DOCUMENT)):
        for key in [key for key in place if key not in {"schema", *optional} and place is not DOCUMENT["hosts"]]:
            kept = dict(place)
            del place[key]
            assert f"it has no “{key}”" in refused(tmp_path / "a.json", json.dumps(DOCUMENT))
            place.clear()
            place.update(kept)


def test_a_file_cut_off_anywhere_is_refused_as_cut_off(tmp_path: Path) -> None:
    check_file.save(host_checks.every_status(), tmp_path / "whole.json")
    whole = (tmp_path / "whole.json").read_bytes()
    for end in (1, 30, 300, *range(1000, len(whole) - 3, len(whole) // 40), len(whole) - 3, len(whole) - 2):
        assert "is cut off" in refused(tmp_path / "a.json", whole[:end].decode(errors="ignore")), end
    (tmp_path / "a.json").write_bytes(whole[:-1])
    assert check_file.load(tmp_path / "a.json").interrupted


def test_a_folder_and_a_file_that_is_not_there_and_a_name_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "x", "No such file"), ("a\0b", "null")):
        with pytest.raises(StallprobesError, match=said):
            check_file.load(path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(CheckFileError, match="cannot be read: Permission denied"):
        check_file.load(tmp_path / "a.json")


def test_a_pipe_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_file, "LARGEST", 2 << 20)
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        assert endless.stdout is not None
        with pytest.raises(CheckFileError, match="is not a check: none is so large"):
            check_file.load(f"/proc/self/fd/{endless.stdout.fileno()}")
        endless.kill()


BEGIN = '{"schema": "stallscope.check/3", "cells": ['
# Text that begins a document, and text that is repeated without end.
BOMBS = {
    "spaces": ("", " "),
    "lists": ("", "["),
    "string": ('{"schema": "stallscope.check/3", "program": "', "a"),
    "cells": (BEGIN, "{},"),
    "hosts": (BEGIN.replace('"cells": [', '"hosts": {"a": {'), '"a": 1,'),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_document_without_end_is_not_read_to_its_end(
    bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_file, "LARGEST", 2 << 20)
    begin, more = BOMBS[bomb]
    content = gzip.compress((begin + more * ((4 << 20) // len(more))).encode(), 1)
    assert "none is so large" in refused(tmp_path / "bomb.json.gz", content)


def test_a_merged_check_larger_than_one_machines_is_read_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = host_checks.merged_small()
    check_file.save(matrix, tmp_path / "a.json")
    size = (tmp_path / "a.json").stat().st_size
    monkeypatch.setattr(check_file, "LARGEST", size // 4)
    monkeypatch.setattr(check_file, "LARGEST_PER_HOST", size // 2)
    mapped = documents.of_check(check_file.load(tmp_path / "a.json"))
    assert mapped == documents.of_check(matrix)
    monkeypatch.setattr(check_file, "LARGEST_PER_HOST", size // 100)
    assert "none is so large" in refused(tmp_path / "a.json", (tmp_path / "a.json").read_bytes())


def test_a_bomb_of_one_megabyte_takes_less_than_300_megabytes(tmp_path: Path) -> None:
    histogram = json.dumps({"max_ns": 200, "histogram": [[bound, 1] for bound in range(64)]})
    repeat = f'{{"host": "", "calls": 1, "window_ns": 1, "channels": {{"call": {histogram}, "wait": {histogram}}}}},'
    cell = f'{{"row": "launch", "repeats": [{repeat * 200}{repeat[:-1]}]}},'
    with gzip.open(tmp_path / "bomb.json.gz", "wb", 1) as file:
        file.write(BEGIN.encode())
        for _ in range(400):
            file.write(cell.encode())
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import re, sys\nfrom stallprobes.matrix import check_file\n"
            "try:\n    check_file.load(sys.argv[1])\nexcept Exception as error:\n    print(error)\n"
            # ru_maxrss would include the process of the tests, of which this one was forked.
            "print(re.search(r'VmHWM:\\s*([0-9]+)', open('/proc/self/status').read())[1])",
            tmp_path / "bomb.json.gz",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, peak_kib = done.stdout.splitlines()
    assert "is not a check: none is so large" in said or "in total" in said
    assert int(peak_kib) < 300 << 10


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("hosts", {"a" * 2000: {}}, "hosts: in a key expected a string of length <= 1024"),
        ("program", "a" * 70_000, "program: expected a string of length <= 65536"),
        (
            "columns",
            [{"name": "a", "title": "", "aggressors": []}] * 2001,
            "columns: expected a list of length <= 2000",
        ),
    ],
)
def test_text_that_is_too_long_is_refused_with_its_place(where: str, value: object, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path / "a.json", spoiled(where, value))


def sorted_keys(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, indent=2)


@pytest.mark.parametrize("matrix", [small(), host_checks.merged_small()], ids=["one host", "merged"])
def test_the_order_of_keys_and_the_white_space_do_not_matter(matrix: Matrix, tmp_path: Path) -> None:
    document = documents.of_check(matrix)
    (tmp_path / "a.json").write_text(sorted_keys(document))
    assert documents.of_check(check_file.load(tmp_path / "a.json")) == document


@pytest.mark.parametrize("name", ["a.json.gz", "a.gz", "A.GZ"])
def test_a_name_that_ends_in_gz_is_saved_compressed_and_read_again(name: str, tmp_path: Path) -> None:
    matrix = host_checks.every_status()
    check_file.save(matrix, tmp_path / name)
    check_file.save(matrix, tmp_path / "plain.json")
    packed, plain = (tmp_path / name).read_bytes(), (tmp_path / "plain.json").read_bytes()
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 3
    assert documents.of_check(check_file.load(tmp_path / name)) == json.loads(plain)
    assert {path.name for path in tmp_path.iterdir()} == {name, "plain.json"}


def test_what_is_compressed_says_nothing_of_when_and_under_which_name(tmp_path: Path) -> None:
    check_file.save(small(), tmp_path / "a.gz")
    check_file.save(small(), tmp_path / "b.gz")
    first = (tmp_path / "a.gz").read_bytes()
    assert first == (tmp_path / "b.gz").read_bytes()
    # The header's flags (no name) and its time.
    assert first[3:8] == bytes(5)


def test_what_the_file_begins_with_counts_and_not_its_name(tmp_path: Path) -> None:
    check_file.save(small(), tmp_path / "a.json.gz")
    check_file.save(small(), tmp_path / "b.json")
    (tmp_path / "a.json.gz").rename(tmp_path / "a.json")
    (tmp_path / "b.json").rename(tmp_path / "b.json.gz")
    assert documents.of_check(check_file.load(tmp_path / "a.json")) == DOCUMENT
    assert documents.of_check(check_file.load(tmp_path / "b.json.gz")) == DOCUMENT


def test_a_compressed_check_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_text("mine")
    with pytest.raises(StallprobesError, match="already exists"):
        check_file.save(small(), path)
    assert path.read_text() == "mine"
    check_file.save(small(), path, force=True)
    assert documents.of_check(check_file.load(path)) == DOCUMENT


PACKED = gzip.compress(json.dumps(DOCUMENT).encode(), mtime=0)


def test_a_compressed_file_cut_off_anywhere_is_refused_as_cut_off(tmp_path: Path) -> None:
    for end in (*range(2, 40), *range(40, len(PACKED) - 12, len(PACKED) // 60), *range(len(PACKED) - 12, len(PACKED))):
        assert "is cut off: it ends within its compressed data" in refused(tmp_path / "a.json.gz", PACKED[:end]), end


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_compressed_bytes_is_a_check_or_a_refusal(data: st.DataObject, tmp_path: Path) -> None:
    packed = bytearray(PACKED)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=6))
    said = outcome(tmp_path / "a.json.gz", bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    assert isinstance(said, str) or documents.of_check(said) == DOCUMENT


def test_nothing_is_saved_that_could_not_be_read_for_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_file, "LARGEST", 1 << 12)
    for name in ("a.json", "a.json.gz"):
        with pytest.raises(CheckFileError, match="the largest that can be read"):
            check_file.save(host_checks.every_status(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# What a careless or hostile hand may put anywhere.
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["ok", "starved", "call", "quiet", "stallscope.check/3", "\ud800", "\x1b"]),
    st.lists(st.integers(-1, 2**54), max_size=3),
    st.lists(st.lists(st.integers(-1, 2**12), min_size=2, max_size=2), max_size=3),
    st.dictionaries(st.sampled_from(["max_ns", "histogram", "call", "x"]), st.integers(), max_size=3),
)


def outcome(path: Path, content: bytes) -> Matrix | str:
    """The matrix or the refusal; any other exception is the test's failure."""
    path.write_bytes(content)
    try:
        matrix = check_file.load(path)
    except CheckFileError as error:
        return str(error)
    # What passes has all that a reader relies on.
    told = documents.of_check(matrix)
    VALIDATOR.validate(told)
    assert documents.of_check(matrix) == json.loads(json.dumps(told, allow_nan=False))
    for cell in matrix.cells.values():
        assert cell.kind
    matrix.findings()
    return matrix


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_changed_in_a_document_is_a_check_or_a_refusal(data: st.DataObject, tmp_path: Path) -> None:
    found = document()
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = found
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and data.draw(st.integers(0, 9)):
                place = place[key]
                continue
            act = data.draw(st.sampled_from(["put", "drop", "twice"]))
            if act == "drop":
                del place[key]
            elif act == "twice" and isinstance(place, list):
                place.append(copy.deepcopy(place[key]))
            else:
                place[key] = data.draw(JUNK)
            break
    outcome(tmp_path / "a.json", json.dumps(found).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_the_bytes_is_a_check_or_a_refusal(data: st.DataObject, tmp_path: Path) -> None:
    text = bytearray(json.dumps(DOCUMENT).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = at + data.draw(st.integers(0, 40))
        text[at:end] = data.draw(
            st.one_of(st.binary(max_size=6), st.sampled_from([b"{", b"]", b"-", b"1e999", b'"', b"9" * 20]))
        )
    outcome(tmp_path / "a.json", bytes(text))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_refused(tmp_path: Path, content: bytes) -> None:
    assert isinstance(outcome(tmp_path / "a.json", content), str)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.integers(0, 2**50), max_size=30), label=st.text(max_size=8), count=st.integers(1, 2**40))
def test_any_histogram_under_any_label_comes_back(tmp_path: Path, values: list[int], label: str, count: int) -> None:
    matrix = small()
    cell = matrix.cells["launch", "spin"]
    whole = Histogram.of(values).merge(Histogram.read([[64, count]], 64))
    (repeat,) = cell.repeats
    matrix = host_checks.changed(
        matrix,
        cell.changed(
            repeats=(replace(repeat, window=replace(repeat.window, channels={Channel(Phase.CALL, label): whole})),),
        ),
    )
    path = tmp_path / "a.json"
    check_file.save(matrix, path, force=True)
    (found,) = check_file.load(path).cells["launch", "spin"].channels.values()
    assert found == whole


def test_what_is_there_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine")
    with pytest.raises(StallprobesError, match="already exists"):
        check_file.save(host_checks.every_status(), path)
    assert path.read_text() == "mine"
    check_file.save(host_checks.every_status(), path, force=True)
    assert check_file.load(path).interrupted
    assert list(tmp_path.iterdir()) == [path]


def test_where_no_links_can_be_made_saving_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    check_file.save(host_checks.every_status(), tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_permissions_are_those_the_umask_leaves(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        check_file.save(matrices.made_up(1), tmp_path / "a.json")
        (tmp_path / "b.json").touch()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.json", "b.json")]
    assert modes == [0o666 & ~umask] * 2


def test_forced_through_a_symbolic_link_the_file_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    check_file.save(matrices.made_up(1), link, force=True)
    assert link.is_symlink()
    assert check_file.load(real).seed == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", "is a folder"),
        ("no/such/a.json", "does not exist"),
        ("file/a.json", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("/dev/null", "is not a regular file"),
        ("a\0b", "null"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_place_that_cannot_be_written_is_refused_and_left_as_it_was(
    name: str, said: str, force: bool, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StallprobesError, match=said):
        check_file.save(matrices.made_up(1), tmp_path / name, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_that_takes_no_files_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(StallprobesError, match="cannot be written"):
        check_file.save(matrices.made_up(1), "/proc/sys/a.json")


def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StallprobesError, match="cannot be written: No space left on device"):
        check_file.save(matrices.made_up(1), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_file_sizes_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    # A module compiled under the limit would leave bytecode cut in the middle, on which every later import fails.
    imports = "import sys; sys.dont_write_bytecode = True"
    imports += "; from factories import matrices; from stallprobes.matrix import check_file"
    program = f"{limit}\n{imports}\ncheck_file.save(matrices.made_up(1), 'a.json')"
    path = os.pathsep.join([*sys.path, str(Path(matrices.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("FileNotWritten: a.json cannot be written: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_file.save(matrices.made_up(1), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_every_status_and_kind_of_cell_is_in_the_test_document() -> None:
    assert {cell.status for cell in host_checks.every_status().cells.values()} == set(Status)


def test_a_check_with_a_damaged_character_is_damaged(tmp_path: Path) -> None:
    content = b'{"schema": "stallscope.check/3", "program": "' + b"x" * 100_000 + b'\xff"}'
    assert "is damaged: it is not UTF-8; copy it again" in refused(tmp_path / "a.json", content)
