"""JSON document of a check, published schema ``stallscope.check/1``: atomic writing and validated reading.

``load`` ignores the figures in the document and computes them from the histograms. A loaded matrix equals the saved
one exactly, and saving it again gives the same document.

A file may be compressed with gzip, to a fifth of its size: ``save`` compresses if the name ends in ``.gz``, and
``load`` recognizes gzip by the first bytes.
"""

from __future__ import annotations

import datetime
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stallprobes.errors import CheckFileError, FileNotWritten, MalformedJson, TruncatedJson
from stallprobes.files import atomic
from stallprobes.files.json_reader import Node, clean, parse, plain
from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile
from stallprobes.latency.sparse import MOST, SparseChannels, SparseHistogram, sparse, value_count
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.matrix.matrix import Cell, HostStatus, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

CHECK_SCHEMA = "stallscope.check/1"
VERSION = 1
COMPRESSED = ".gz"
# Largest document in bytes, uncompressed. A check takes about 5 MB, a merged one 1 to 2 MB per host.
LARGEST = 512 * 1024 * 1024
BACKENDS = ("cuda", "simulated", "host")

_GZIP = b"\x1f\x8b"
# 16 plus the window size makes zlib write gzip's header and checksum.
_AS_GZIP = 16 + zlib.MAX_WBITS
_OTHERS = ("stallscope.run", "stallscope.doctor")
# Upper limits of values in a document: thirty years in seconds, and 64 bits of nanoseconds in microseconds.
_SECONDS = 1e9
_MICROSECONDS = 1e13
_RATIO = 1e18
# A clause of a merged cell's reason: status, hosts, and the reason where there is one.
_CLAUSE = re.compile(rf"({'|'.join(status for status in Status)}) on ([^:;]+)(?:: (.*))?", re.DOTALL)


def document(matrix: Matrix) -> dict[str, Any]:
    """``matrix`` as JSON types, without what JSON or a terminal cannot represent (NaN, control characters)."""
    return {**_head(matrix), "cells": [_cell_out(cell) for cell in matrix.cells.values()]}


def save(matrix: Matrix, path: Path | str, force: bool = False) -> None:
    """Write ``matrix`` to ``path`` atomically; an existing file is replaced only with ``force``.

    The file is compressed with gzip if the name ends in ``.gz``; equal matrices give equal bytes. The permissions
    follow the user's umask. Raises CheckFileError, and then leaves no temporary file.
    """
    chunks = _chunks(matrix, path)
    try:
        atomic.write(Path(path), _compressed(chunks) if _is_gzip_name(path) else chunks, force=force)
    except FileNotWritten as error:
        raise CheckFileError(str(error)) from error


def ready(path: Path | str, force: bool = False) -> None:
    """Raise CheckFileError if ``save`` could not write ``path`` now; to be called before measuring."""
    try:
        atomic.ready(Path(path), force=force)
    except FileNotWritten as error:
        raise CheckFileError(str(error)) from error


def load(path: Path | str) -> Matrix:
    """The check saved in ``path``, compressed or not. Raises CheckFileError for any other content."""
    text = _text(path)
    try:
        document = parse(text, _decoded_object)
        _expect_check(path, document)
        return _matrix(Node(document, ""))
    except TruncatedJson as error:
        raise CheckFileError(f"{path} is cut off: {error}; copy it again, or save the check again") from error
    except MalformedJson as error:
        # Without the schema's name at the start, the file is more likely another one than a damaged check.
        if text.startswith("{") and f'"{CHECK_SCHEMA}"' in text[:200]:
            raise CheckFileError(f"{path} is damaged: {error}; copy it again, or save the check again") from error
        raise CheckFileError(
            f"{path} is not a check: {error}; name a file that `stallscope check --save` wrote"
        ) from error
    except MemoryError:
        raise CheckFileError(f"{path} does not fit into memory: read it on a larger machine") from None


def _text(path: Path | str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if data.startswith(_GZIP) and len(data) <= LARGEST:
            data = _decompressed(path, data)
    except IsADirectoryError:
        raise CheckFileError(f"{path} is a folder: name a file in it") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckFileError(f"{path} cannot be read: {why}") from error
    except MemoryError:
        raise CheckFileError(f"{path} does not fit into memory: read it on a larger machine") from None
    if len(data) > LARGEST:
        raise CheckFileError(f"{path} is not a check: none is larger than {LARGEST >> 20} MiB; name another file")
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
            f"{path} is not a check: it is not UTF-8; name a file that `stallscope check --save` wrote"
        ) from None


def _decompressed(path: Path | str, data: bytes) -> bytes:
    """``data`` decompressed with gzip, at most LARGEST + 1 bytes of it."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(LARGEST + 1)
    except EOFError:
        raise CheckFileError(
            f"{path} is cut off: it ends within its compressed data; copy it again, or save the check again"
        ) from None
    except (OSError, zlib.error):
        raise CheckFileError(
            f"{path} is damaged: its compressed data cannot be decompressed; copy it again, or save the check again"
        ) from None


def _is_gzip_name(path: Path | str) -> bool:
    return Path(path).suffix.lower() == COMPRESSED


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """``chunks`` compressed with gzip, without time and name in the header, so that equal input gives equal bytes."""
    packer = zlib.compressobj(wbits=_AS_GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _expect_check(path: Path | str, document: object) -> None:
    name = document.get("schema") if isinstance(document, dict) else None
    if name == CHECK_SCHEMA:
        return
    tool, _, version = name.partition("/") if isinstance(name, str) else ("", "", "")
    kind = tool.removeprefix("stallscope.")
    newer = version.isascii() and version.isdigit() and (len(version) > 4 or int(version) > VERSION)
    if tool == "stallscope.check" and newer:
        raise CheckFileError(
            f"{path} is a check of schema version {version[:20]}, but this stallscope reads {VERSION}: upgrade it"
        )
    what = f"what `stallscope {kind} --json` writes, not a check" if tool in _OTHERS else "not a check of stallscope"
    raise CheckFileError(f"{path} is {what}: name a file that `stallscope check --save` wrote")


def _chunks(matrix: Matrix, path: Path | str) -> Iterator[bytes]:
    """The document as text in chunks, one line per cell, so that it is never in memory as a whole."""
    size = 0

    def counted(text: str) -> bytes:
        nonlocal size
        chunk = text.encode()
        size += len(chunk)
        if size > LARGEST:
            raise CheckFileError(
                f"{path} would be larger than {LARGEST >> 20} MiB, the largest that can be read: merge fewer "
                "hosts at a time, or check fewer victims"
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
        "in_flight_us": _us(cell.in_flight_ns),
        "in_flight_op": plain(cell.in_flight_op),
        "figures": figures(cell),
        "verdicts": [_verdict_out(verdict) for verdict in cell.verdicts],
        "repeats": [
            {
                "host": clean(repeat.host),
                "calls": repeat.window.iterations,
                "window_s": repeat.window.seconds,
                "lanes": _channels_out(repeat.window.channels),
                "before": _channels_out(repeat.before),
                "after": _channels_out(repeat.after),
            }
            for repeat in cell.repeats
        ],
    }


def figures(cell: Cell) -> dict[str, dict[str, float | None]]:
    """The figures of each channel of ``cell``: percentiles in microseconds and those of the baseline, their ratios, and
    the number of calls. A percentile or ratio is None without calls.
    """
    return {_channel_out(channel): _figures(cell, channel) for channel in cell.channels}


def _figures(cell: Cell, channel: Channel) -> dict[str, float | None]:
    now, baseline = cell.channels[channel], cell.baseline.get(channel)
    found: dict[str, float | None] = {}
    for quantile in PERCENTILES:
        ratio = BaselineRatio.of(cell.channels, cell.baseline, channel, quantile)
        found[f"{quantile}_us"] = _us(now.percentile(quantile.percent))
        found[f"quiet_{quantile}_us"] = None if baseline is None else _us(baseline.percentile(quantile.percent))
        found[f"times_{quantile}"] = None if ratio is None else _rounded(ratio.ratio)
    return {**found, "calls": now.count}


def _verdict_out(verdict: Verdict) -> dict[str, Any]:
    return {
        "probe": clean(verdict.probe),
        "phase": None if verdict.phase is None else str(verdict.phase),
        "quantile": str(verdict.quantile),
        "quiet_us": _us(verdict.baseline_ns),
        "now_us": _us(verdict.now_ns),
        "ratio": _rounded(verdict.ratio),
        "kind": str(verdict.kind),
        "cause": clean(verdict.cause),
        "sentence": clean(verdict.sentence),
        "helps": clean(verdict.remedy),
    }


def _channels_out(channels: ChannelMap) -> dict[str, Any]:
    found = {}
    for channel in channels:
        used = sparse(channels, channel)
        found[_channel_out(channel)] = {"max_ns": used.max_ns, "histogram": used.pairs()}
    return found


def _channel_out(channel: Channel) -> str:
    return f"{channel.phase}:{clean(channel.label)}" if channel.label else str(channel.phase)


def _us(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _ns(us: float | None) -> float | None:
    return None if us is None else us * 1000


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


def _decoded_object(found: dict[str, Any]) -> Any:
    """``found`` as a sparse histogram if it is one: as JSON types it takes ten times the memory."""
    if found.keys() == {"max_ns", "histogram"}:
        try:
            return SparseHistogram.read(found["histogram"], found["max_ns"])
        except ValueError:
            # The caller reports the error with its place in the document.
            return found
    return found


def _matrix(node: Node) -> Matrix:
    fields = node.fields(
        "schema", "program", "backend", "profile", "sim_seed", "seed", "quick", "interrupted", "started_at", "seconds",
        "repeats", "pace_us", "fingerprint", "hosts", "rows", "columns", "cells",
    )  # fmt: skip
    rows = [_row(one) for one in fields["rows"].items()]
    columns = [_column(one) for one in fields["columns"].items()]
    hosts = {name: one.free() for name, one in fields["hosts"].members().items()}
    _require_unique(fields["rows"], [row.name for row in rows])
    _require_unique(fields["columns"], [column.name for column in columns])
    if "" in hosts:
        raise fields["hosts"].wrong("has a host without a name")
    cells: dict[tuple[str, str], Cell] = {}
    known = {row.name for row in rows}, {column.name for column in columns}
    for one in fields["cells"].items():
        cell = _cell(one, known, list(hosts))
        if (cell.row, cell.column) in cells:
            raise one.wrong("is a second cell of its row and column")
        cells[cell.row, cell.column] = cell
    return Matrix(
        backend=fields["backend"].one_of(BACKENDS),
        fingerprint=fields["fingerprint"].free(),
        started_at=_time(fields["started_at"]),
        seconds=fields["seconds"].number(_SECONDS),
        rows=tuple(rows),
        columns=tuple(columns),
        cells=cells,
        seed=fields["seed"].whole(-MOST, MOST),
        repeats=fields["repeats"].whole(0, MOST),
        pace_us=fields["pace_us"].number(_MICROSECONDS),
        quick=fields["quick"].flag(),
        interrupted=fields["interrupted"].flag(),
        profile=fields["profile"].text_or_none(),
        sim_seed=None if fields["sim_seed"].value is None else fields["sim_seed"].whole(-MOST, MOST),
        program=fields["program"].text(),
        hosts=hosts,
    )


def _row(node: Node) -> MatrixRow:
    fields = node.fields("name", "title", "entry", "context", "stream")
    name = fields.pop("name").name()
    return MatrixRow(name=name, **{key: one.text() for key, one in fields.items()})


def _column(node: Node) -> MatrixColumn:
    fields = node.fields("name", "title", "aggressors")
    aggressors = tuple(one.name() for one in fields["aggressors"].items())
    return MatrixColumn(fields["name"].name(), fields["title"].text(), aggressors)


def _require_unique(node: Node, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise node.wrong("has a duplicate name")


def _time(node: Node) -> str:
    text = node.text()
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise node.wrong("is not an ISO 8601 time with an offset from UTC")
    return text


def _cell(node: Node, known: tuple[set[str], set[str]], hosts: Sequence[str]) -> Cell:
    fields = node.fields(
        "row", "column", "status", "reason", "in_flight_us", "in_flight_op", "figures", "verdicts", "repeats"
    )
    for key, names in zip(("row", "column"), known, strict=True):
        if fields[key].text() not in names:
            raise fields[key].wrong("is not among those the check lists")
    fields["figures"].members()
    repeats = tuple(_repeat(one, {"", *hosts}) for one in fields["repeats"].items())
    counts = (
        value_count(channels)
        for repeat in repeats
        for channels in (repeat.window.channels, repeat.before, repeat.after)
    )
    if sum(counts) > MOST:
        raise node.wrong("has counts above 2**53 in total")
    status, reason = fields["status"].choice(Status), fields["reason"].text_or_none()
    in_flight_ns = _ns(fields["in_flight_us"].number_or_none(_MICROSECONDS))
    return Cell(
        row=fields["row"].text(),
        column=fields["column"].text(),
        status=status,
        reason=reason,
        repeats=repeats,
        verdicts=tuple(_verdict(one, hosts) for one in fields["verdicts"].items()),
        in_flight_ns=None if in_flight_ns is None else round(in_flight_ns),
        in_flight_op=fields["in_flight_op"].text_or_none(),
        hosts=tuple(_host_statuses(reason or "", status)) if hosts else (),
    )


def _host_statuses(reason: str, status: Status) -> Iterator[HostStatus]:
    """The hosts in the reason of a merged cell, as ``host_reasons`` writes it.

    Version 1 of the document has no other field for the status and reason of each host.
    """
    for clause in reason.split("; "):
        match = _CLAUSE.fullmatch(clause)
        if match is not None:
            for host in match[2].split(", "):
                yield HostStatus(host, Status(match[1]), match[3] or "")


def _repeat(node: Node, hosts: set[str]) -> Repeat:
    fields = node.fields("host", "calls", "window_s", "lanes", "before", "after")
    if fields["host"].text() not in hosts:
        raise fields["host"].wrong("is not among the hosts")
    return Repeat(
        window=Window(
            channels=_channels(fields["lanes"]),
            iterations=fields["calls"].whole(0, MOST),
            duration_ns=round(fields["window_s"].number(_SECONDS) * 1e9),
        ),
        before=_channels(fields["before"]),
        after=_channels(fields["after"]),
        host=fields["host"].text(),
    )


def _channels(node: Node) -> SparseChannels:
    held = {}
    for key, one in node.members().items():
        phase, colon, label = key.partition(":")
        if colon and not label:
            raise one.wrong("has an empty label")
        channel = Channel(Node(phase, f"the phase in {one.where}").choice(Phase), label)
        if not isinstance(one.value, SparseHistogram):
            fields = one.fields("max_ns", "histogram")
            try:
                one.value = SparseHistogram.read(fields["histogram"].value, fields["max_ns"].value)
            except ValueError as error:
                raise one.wrong(str(error)) from error
        held[channel] = one.value
    return SparseChannels(held)


def _verdict(node: Node, hosts: Sequence[str]) -> Verdict:
    fields = node.fields(
        "probe", "phase", "quantile", "quiet_us", "now_us", "ratio", "kind", "cause", "sentence", "helps"
    )
    try:
        kind = VerdictKind(fields["kind"].text())
    except ValueError:
        raise fields["kind"].wrong("is not a verdict kind") from None
    cause = fields["cause"].text()
    host, head = _split_sentence(fields["sentence"].text(), cause, hosts)
    return Verdict(
        probe=fields["probe"].text(),
        phase=None if fields["phase"].value is None else fields["phase"].choice(Phase),
        quantile=Quantile(fields["quantile"].one_of(tuple(Quantile))),
        baseline_ns=_ns(fields["quiet_us"].number_or_none(_MICROSECONDS)),
        now_ns=_ns(fields["now_us"].number_or_none(_MICROSECONDS)),
        ratio=fields["ratio"].number_or_none(_RATIO),
        kind=kind,
        head=head,
        cause=cause,
        remedy=fields["helps"].text(),
        host=host,
    )


def _split_sentence(sentence: str, cause: str, hosts: Sequence[str]) -> tuple[str, str]:
    """The host and the head of a verdict's sentence, as ``Verdict.sentence`` composes it.

    Version 1 of the document has no other fields for them.
    """
    host = next((one for one in hosts if sentence.startswith(f"On {one}: ")), "")
    head = sentence.removeprefix(f"On {host}: ") if host else sentence
    return host, head.removesuffix(cause).rstrip() if cause else head
