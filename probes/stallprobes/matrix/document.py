"""A check as a file by the published schema ``stallscope.check/1``: saved whole or not at all, read with doubt.

Figures in the document are for readers; they follow from the histograms and are worked out anew when it is read. What
is read is therefore what was saved, to the last count, and saving it again gives the same document.

A file may be compressed with gzip, which takes a fifth of the space: ``save`` does it for a name that ends in ``.gz``,
and ``load`` goes by what the file begins with, whatever it is called.
"""

from __future__ import annotations

import datetime
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stallprobes.errors import CheckFileError, FileNotWritten, MalformedJson, TruncatedJson
from stallprobes.files import atomic
from stallprobes.files.json_reader import Node, clean, parse, plain
from stallprobes.latency.sparse import MOST, SparseChannels, SparseHistogram, counted, sparse
from stallprobes.matrix.matrix import Cell, Matrix, MatrixColumn, MatrixRow, Repeat, Status, Times
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.rules import Verdict, severity

CHECK_SCHEMA = "stallscope.check/1"
VERSION = 1
COMPRESSED = ".gz"
# A whole check takes some 5 MB, and 1 to 2 MB for each host of a merged one. It counts unpacked.
LARGEST = 512 * 1024 * 1024
BACKENDS = ("cuda", "simulated", "host")

_GZIP = b"\x1f\x8b"
# Added to zlib's largest window it asks for gzip's header and checksum.
_AS_GZIP = 16 + zlib.MAX_WBITS
_OTHERS = ("stallscope.run", "stallscope.doctor")
_QUANTILES = ("p50", "p99", "in-flight")
# Thirty years in seconds, and in microseconds as long as any nanosecond count can say: beyond it something is wrong.
_SECONDS = 1e9
_MICROSECONDS = 1e13
_RATIO = 1e18


def document(matrix: Matrix) -> dict[str, Any]:
    """``matrix`` as JSON types. What JSON or a terminal could not take (NaN, control characters) is replaced."""
    return {**_head(matrix), "cells": [_cell_out(cell) for cell in matrix.cells.values()]}


def save(matrix: Matrix, path: Path | str, force: bool = False) -> None:
    """Write ``matrix`` to ``path``: whole or not at all, over a file that is there only with ``force``.

    Compressed with gzip when the name ends in ``.gz``; the same matrix then gives the same bytes whenever it is saved.
    The permissions are what the user's umask leaves. Raises CheckFileError; no other file is left behind then.
    """
    chunks = _chunks(matrix, path)
    try:
        atomic.write(Path(path), _packed(chunks) if _named_compressed(path) else chunks, force=force)
    except FileNotWritten as error:
        raise CheckFileError(str(error)) from error


def ready(path: Path | str, force: bool = False) -> None:
    """Raise CheckFileError where ``save`` would refuse ``path`` as things are: to be asked before measuring."""
    try:
        atomic.ready(Path(path), force=force)
    except FileNotWritten as error:
        raise CheckFileError(str(error)) from error


def load(path: Path | str) -> Matrix:
    """The check saved in ``path``, compressed or not. Raises CheckFileError for anything else, whatever is in it."""
    text = _text(path)
    try:
        told = parse(text, _made)
        _expect_check(path, told)
        return _matrix(Node(told, ""))
    except TruncatedJson as error:
        raise CheckFileError(f"{path} is cut off: {error}; copy it again, or save the check again") from error
    except MalformedJson as error:
        # Text that is not even JSON is more likely to be another file than a spoiled check.
        if text.startswith("{") and f'"{CHECK_SCHEMA}"' in text[:200]:
            raise CheckFileError(f"{path} is damaged: {error}; copy it again, or save the check again") from error
        raise CheckFileError(
            f"{path} is no check: {error}; name a file that `stallscope check --save` wrote"
        ) from error
    except MemoryError:
        raise CheckFileError(f"{path} takes more memory than there is: read it on a larger machine") from None


def _text(path: Path | str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if data.startswith(_GZIP) and len(data) <= LARGEST:
            data = _unpacked(path, data)
    except IsADirectoryError:
        raise CheckFileError(f"{path} is a folder: name a file in it") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckFileError(f"{path} cannot be read: {why}") from error
    except MemoryError:
        raise CheckFileError(f"{path} takes more memory than there is: read it on a larger machine") from None
    if len(data) > LARGEST:
        raise CheckFileError(f"{path} is no check: none is larger than {LARGEST >> 20} MiB; name another file")
    if not data.strip():
        raise CheckFileError(f"{path} is empty: save the check again")
    if data.startswith(b'{"format": "stallscope.recording"'):
        raise CheckFileError(f"{path} is a recording, not a check: look at it with `stallscope replay`")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise CheckFileError(f"{path} begins with a byte order mark: save it as plain UTF-8")
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise CheckFileError(
            f"{path} is no check: it is not UTF-8; name a file that `stallscope check --save` wrote"
        ) from None


def _unpacked(path: Path | str, data: bytes) -> bytes:
    """What ``data`` holds, compressed with gzip: never more than one byte above LARGEST, whatever it claims to hold."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(LARGEST + 1)
    except EOFError:
        raise CheckFileError(
            f"{path} is cut off: it ends within its compressed data; copy it again, or save the check again"
        ) from None
    except (OSError, zlib.error):
        raise CheckFileError(
            f"{path} is damaged: what is compressed in it cannot be unpacked; copy it again, or save the check again"
        ) from None


def _named_compressed(path: Path | str) -> bool:
    return Path(path).suffix.lower() == COMPRESSED


def _packed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """``chunks`` compressed with gzip. Its header has neither time nor name, so that the same gives the same."""
    packer = zlib.compressobj(wbits=_AS_GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _expect_check(path: Path | str, told: object) -> None:
    name = told.get("schema") if isinstance(told, dict) else None
    if name == CHECK_SCHEMA:
        return
    tool, _, version = name.partition("/") if isinstance(name, str) else ("", "", "")
    kind = tool.removeprefix("stallscope.")
    newer = version.isascii() and version.isdigit() and (len(version) > 4 or int(version) > VERSION)
    if tool == "stallscope.check" and newer:
        raise CheckFileError(
            f"{path} is a check of schema version {version[:20]}, but this stallscope reads {VERSION}: upgrade it"
        )
    what = f"what `stallscope {kind} --json` writes, not a check" if tool in _OTHERS else "no check of stallscope"
    raise CheckFileError(f"{path} is {what}: name a file that `stallscope check --save` wrote")


def _chunks(matrix: Matrix, path: Path | str) -> Iterator[bytes]:
    """The document as text, a line for each cell, without ever holding all of it."""
    size = 0

    def counted(text: str) -> bytes:
        nonlocal size
        chunk = text.encode()
        size += len(chunk)
        if size > LARGEST:
            raise CheckFileError(
                f"{path} would be larger than {LARGEST >> 20} MiB, which no reader takes: merge fewer hosts at a time, "
                "or check fewer victims"
            )
        return chunk

    yield counted(f'{_json(_head(matrix))[:-1]},"cells":[')
    for number, cell in enumerate(matrix.cells.values()):
        yield counted(f"{',' if number else ''}\n{_json(_cell_out(cell))}")
    yield counted("\n]}\n")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _head(matrix: Matrix) -> dict[str, Any]:
    return {
        "schema": CHECK_SCHEMA,
        "program": clean(matrix.program),
        "backend": matrix.backend,
        "profile": matrix.profile,
        "sim_seed": matrix.sim_seed,
        "seed": matrix.seed,
        "quick": matrix.quick,
        "interrupted": matrix.interrupted,
        "started_at": matrix.started_at,
        "seconds": float(matrix.seconds),
        "repeats": matrix.repeats,
        "pace_us": float(matrix.pace_us),
        "fingerprint": plain(matrix.fingerprint),
        "hosts": {clean(name): plain(of) for name, of in matrix.hosts.items()},
        "rows": [plain(asdict(row)) for row in matrix.rows],
        "columns": [plain(asdict(column)) for column in matrix.columns],
    }


def _cell_out(cell: Cell) -> dict[str, Any]:
    return {
        "row": clean(cell.row),
        "column": clean(cell.column),
        "status": str(cell.status),
        "reason": plain(cell.reason),
        "in_flight_us": _rounded(cell.in_flight_us),
        "in_flight_op": plain(cell.in_flight_op),
        "figures": figures(cell),
        "verdicts": [_verdict_out(verdict) for verdict in cell.verdicts],
        "repeats": [
            {
                "host": clean(repeat.host),
                "calls": repeat.calls,
                "window_s": float(repeat.window_s),
                "lanes": _channels_out(repeat.channels),
                "before": _channels_out(repeat.before),
                "after": _channels_out(repeat.after),
            }
            for repeat in cell.repeats
        ],
    }


def figures(cell: Cell) -> dict[str, dict[str, float | None]]:
    """The figures of each channel of ``cell``: microseconds now and in quiet, how many times quiet that is, and calls.

    None is what has no calls behind it.
    """
    return {_channel_out(channel): _figures(cell, channel) for channel in cell.channels}


def _figures(cell: Cell, channel: Channel) -> dict[str, float | None]:
    now, quiet = cell.channels[channel], cell.quiet.get(channel)
    found: dict[str, float | None] = {}
    for q in (50, 99):
        here, there = now.percentile(q), None if quiet is None else quiet.percentile(q)
        times = None if here is None or there is None else Times(channel, q, there / 1000, here / 1000).ratio
        found[f"p{q}_us"] = None if here is None else _rounded(here / 1000)
        found[f"quiet_p{q}_us"] = None if there is None else _rounded(there / 1000)
        found[f"times_p{q}"] = _rounded(times)
    return {**found, "calls": now.count}


def _verdict_out(verdict: Verdict) -> dict[str, Any]:
    return {
        **plain(asdict(verdict)),
        "quiet_us": _rounded(verdict.quiet_us),
        "now_us": _rounded(verdict.now_us),
        "ratio": _rounded(verdict.ratio),
    }


def _channels_out(channels: Mapping[Channel, Any]) -> dict[str, Any]:
    found = {}
    for channel in channels:
        used = sparse(channels, channel)
        found[_channel_out(channel)] = {"max_ns": used.max_ns, "histogram": used.pairs()}
    return found


def _channel_out(channel: Channel) -> str:
    return f"{channel.phase}:{clean(channel.label)}" if channel.label else str(channel.phase)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


def _made(found: dict[str, Any]) -> Any:
    """A histogram at once where an object is one, since as JSON it takes ten times the memory."""
    if found.keys() == {"max_ns", "histogram"}:
        try:
            return SparseHistogram.read(found["histogram"], found["max_ns"])
        except ValueError:
            # Whoever comes upon it can say where it stands.
            return found
    return found


def _matrix(node: Node) -> Matrix:
    told = node.fields(
        "schema", "program", "backend", "profile", "sim_seed", "seed", "quick", "interrupted", "started_at", "seconds",
        "repeats", "pace_us", "fingerprint", "hosts", "rows", "columns", "cells",
    )  # fmt: skip
    rows = [_row(one) for one in told["rows"].items()]
    columns = [_column(one) for one in told["columns"].items()]
    hosts = {name: one.free() for name, one in told["hosts"].members().items()}
    _different(told["rows"], [row.name for row in rows])
    _different(told["columns"], [column.name for column in columns])
    if "" in hosts:
        raise told["hosts"].wrong("has a host without a name")
    cells: dict[tuple[str, str], Cell] = {}
    known = {row.name for row in rows}, {column.name for column in columns}
    for one in told["cells"].items():
        cell = _cell(one, known, {"", *hosts})
        if (cell.row, cell.column) in cells:
            raise one.wrong("is a cell that was there already")
        cells[cell.row, cell.column] = cell
    return Matrix(
        backend=told["backend"].one_of(BACKENDS),
        fingerprint=told["fingerprint"].free(),
        started_at=_time(told["started_at"]),
        seconds=told["seconds"].number(_SECONDS),
        rows=tuple(rows),
        columns=tuple(columns),
        cells=cells,
        seed=told["seed"].whole(-MOST, MOST),
        repeats=told["repeats"].whole(0, MOST),
        pace_us=told["pace_us"].number(_MICROSECONDS),
        quick=told["quick"].flag(),
        interrupted=told["interrupted"].flag(),
        profile=told["profile"].text_or_none(),
        sim_seed=None if told["sim_seed"].value is None else told["sim_seed"].whole(-MOST, MOST),
        program=told["program"].text(),
        hosts=hosts,
    )


def _row(node: Node) -> MatrixRow:
    told = node.fields("name", "title", "entry", "context", "stream")
    name = told.pop("name").name()
    return MatrixRow(name=name, **{key: one.text() for key, one in told.items()})


def _column(node: Node) -> MatrixColumn:
    told = node.fields("name", "title", "aggressors")
    aggressors = tuple(one.name() for one in told["aggressors"].items())
    return MatrixColumn(told["name"].name(), told["title"].text(), aggressors)


def _different(node: Node, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise node.wrong("has a name twice")


def _time(node: Node) -> str:
    text = node.text()
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise node.wrong("is no time by ISO 8601 with an offset from UTC")
    return text


def _cell(node: Node, known: tuple[set[str], set[str]], hosts: set[str]) -> Cell:
    told = node.fields(
        "row", "column", "status", "reason", "in_flight_us", "in_flight_op", "figures", "verdicts", "repeats"
    )
    for key, names in zip(("row", "column"), known, strict=True):
        if told[key].text() not in names:
            raise told[key].wrong("is not among those the check lists")
    told["figures"].members()
    repeats = tuple(_repeat(one, hosts) for one in told["repeats"].items())
    if sum(counted(r.channels) + counted(r.before) + counted(r.after) for r in repeats) > MOST:
        raise node.wrong("has counts above 2**53 taken together")
    return Cell(
        row=told["row"].text(),
        column=told["column"].text(),
        status=told["status"].choice(Status),
        reason=told["reason"].text_or_none(),
        repeats=repeats,
        verdicts=tuple(_verdict(one) for one in told["verdicts"].items()),
        in_flight_us=told["in_flight_us"].number_or_none(_MICROSECONDS),
        in_flight_op=told["in_flight_op"].text_or_none(),
    )


def _repeat(node: Node, hosts: set[str]) -> Repeat:
    told = node.fields("host", "calls", "window_s", "lanes", "before", "after")
    if told["host"].text() not in hosts:
        raise told["host"].wrong("is not among the hosts")
    return Repeat(
        channels=_channels(told["lanes"]),
        before=_channels(told["before"]),
        after=_channels(told["after"]),
        calls=told["calls"].whole(0, MOST),
        window_s=told["window_s"].number(_SECONDS),
        host=told["host"].text(),
    )


def _channels(node: Node) -> SparseChannels:
    held = {}
    for key, one in node.members().items():
        phase, colon, label = key.partition(":")
        if colon and not label:
            raise one.wrong("has an empty label")
        channel = Channel(Node(phase, f"the phase in {one.where}").choice(Phase), label)
        if not isinstance(one.value, SparseHistogram):
            told = one.fields("max_ns", "histogram")
            try:
                one.value = SparseHistogram.read(told["histogram"].value, told["max_ns"].value)
            except ValueError as error:
                raise one.wrong(str(error)) from error
        held[channel] = one.value
    return SparseChannels(held)


def _verdict(node: Node) -> Verdict:
    told = node.fields(
        "probe", "phase", "quantile", "quiet_us", "now_us", "ratio", "kind", "cause", "sentence", "helps"
    )
    verdict = Verdict(
        probe=told["probe"].text(),
        phase=None if told["phase"].value is None else told["phase"].choice(Phase),
        quantile=told["quantile"].one_of(_QUANTILES),
        quiet_us=told["quiet_us"].number_or_none(_MICROSECONDS),
        now_us=told["now_us"].number_or_none(_MICROSECONDS),
        ratio=told["ratio"].number_or_none(_RATIO),
        kind=told["kind"].text(),
        cause=told["cause"].text(),
        sentence=told["sentence"].text(),
        helps=told["helps"].text(),
    )
    try:
        severity(verdict)
    except ValueError:
        raise told["kind"].wrong("is no kind of verdict") from None
    return verdict
