"""JSON document of a check, published schema ``stallscope.check/2``: atomic writing and validated reading.

``load`` ignores the figures in the document and computes them from the histograms. A loaded matrix equals the saved
one exactly, and saving it again gives the same document.

A file may be compressed with gzip, to a fifth of its size: ``save`` compresses if the name ends in ``.gz``, and
``load`` recognizes gzip by the first bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stallprobes.errors import (
    CheckFileError,
    DamagedData,
    FileNotWritten,
    MalformedJson,
    OversizedData,
    TruncatedJson,
)
from stallprobes.files import atomic, compression
from stallprobes.files.compression import Compression, DecompressedStream
from stallprobes.files.json_reader import clean, plain
from stallprobes.files.json_stream import JsonStream
from stallprobes.foreign_text import escaped_json
from stallprobes.latency import histogram_text
from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap
from stallprobes.matrix import check_reader, check_stream
from stallprobes.matrix.comparing.compare_document import shares
from stallprobes.matrix.matrix import Cell, Matrix, Repeat
from stallprobes.model import Channel, Phase, Source
from stallprobes.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from stallprobes.matrix.reference import ReferenceComparison

CHECK_SCHEMA = "stallscope.check/2"

# The schema's name is in so many characters at the start of a check.
_HEAD = 200
_GZIP = b"\x1f\x8b"
_NAME = "stallscope.check"
_OTHERS = ("stallscope.run", "stallscope.doctor")


def document(matrix: Matrix, reference: ReferenceComparison | None = None) -> dict[str, Any]:
    """``matrix`` as JSON types, without what JSON or a terminal cannot represent (NaN, control characters).

    ``reference`` is its comparison with a reference.
    """
    lazy = lazy_document(matrix, reference)
    return {**lazy, "cells": list(lazy["cells"])}


def lazy_document(matrix: Matrix, reference: ReferenceComparison | None = None) -> dict[str, Any]:
    """What ``document`` returns, but ``cells`` is an iterator: those of a thousand hosts do not fit into memory."""
    own = _Detectable.of(matrix)
    head = _head(matrix, own)
    if reference is not None:
        from stallprobes.matrix import reference_document

        head["reference"] = reference_document.comparison_out(reference)
    sources = _Sources(matrix)
    return {**head, "cells": (_cell_out(cell, own, sources) for cell in matrix.cells.values())}


def save(
    matrix: Matrix, path: Path | str, force: bool = False, progress: Callable[[float], None] = lambda _: None
) -> None:
    """Write ``matrix`` to ``path`` atomically; an existing file is replaced only with ``force``.

    The file is compressed with gzip if the name ends in ``.gz``; equal matrices give equal bytes. The permissions
    follow the user's umask. ``progress`` is called with the share (0 to 1) of the cells that are written. Raises
    CheckFileError, and then leaves no temporary file.
    """
    chunks = _chunks(matrix, path, progress)
    try:
        atomic.write(Path(path), compression.for_name(path, chunks), force=force)
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
    try:
        with open(path, "rb") as file:
            return _read(path, file)
    except IsADirectoryError:
        raise CheckFileError(f"{path} is a folder: name a file in it") from None
    except OversizedData:
        raise CheckFileError(
            f"{path} is not a check: none is so large ({_largest(0)} MiB for one machine); name another file"
        ) from None
    except MemoryError:
        raise CheckFileError(f"{path} does not fit into memory: read it on a larger machine") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckFileError(f"{path} cannot be read: {why}") from error


def _read(path: Path | str, file: BinaryIO) -> Matrix:
    compressed = file.peek(len(_GZIP)).startswith(_GZIP)  # type: ignore[attr-defined]
    content = DecompressedStream(
        file, Compression.GZIP if compressed else Compression.NONE, check_reader.CheckSize(0).bytes
    )
    beginning = bytearray()
    stream = JsonStream(_pieces(path, content, beginning), histogram_text.decoded_object, histogram_text.HISTOGRAMS)
    head = ""
    try:
        head = stream.next_text(_HEAD)
        if not head and content.complete:
            raise CheckFileError(f"{path} is empty: save the check again")
        matrix = check_stream.read(stream, content, lambda name: _check_schema(path, name))
        if content.ended_early:
            raise TruncatedJson
        return matrix
    except UnicodeDecodeError:
        if _NAME.encode() not in beginning:
            raise CheckFileError(
                f"{path} is not a check: it is not UTF-8; name a file that `stallscope check --save` wrote"
            ) from None
        raise CheckFileError(f"{path} is damaged: it is not UTF-8; copy it again, or save the check again") from None
    except DamagedData as error:
        raise CheckFileError(f"{path} is damaged: {error}; copy it again, or save the check again") from error
    except MalformedJson as error:
        if isinstance(error, TruncatedJson) or content.ended_early:
            why = "it ends within its compressed data" if content.ended_early else error
            raise CheckFileError(f"{path} is cut off: {why}; copy it again, or save the check again") from error
        # Without the schema's name at the start, the file is more likely another one than a damaged check.
        if head.startswith("{") and f'"{_NAME}/' in head:
            raise CheckFileError(f"{path} is damaged: {error}; copy it again, or save the check again") from error
        raise CheckFileError(
            f"{path} is not a check: {error}; name a file that `stallscope check --save` wrote"
        ) from error


def _pieces(path: Path | str, content: DecompressedStream, beginning: bytearray) -> Iterator[bytes]:
    """The text in ``content``, whose first bytes are added to ``beginning``.

    Raises CheckFileError for what cannot be a check, by its beginning.
    """
    piece = content.read()
    beginning += piece[:_HEAD]
    if piece.startswith(b'{"format": "stallscope.recording"'):
        raise CheckFileError(f"{path} is a recording, not a check: look at it with `stallscope replay`")
    if piece.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise CheckFileError(f"{path} begins with a byte order mark: save it as plain UTF-8")
    while piece:
        yield piece
        piece = content.read()


def _largest(hosts: int) -> int:
    """Size of the largest document of ``hosts`` machines in MiB."""
    return check_reader.CheckSize(hosts).bytes >> 20


def _check_schema(path: Path | str, name: object) -> None:
    """Raise CheckFileError unless ``name`` is that of the check's schema."""
    if name == CHECK_SCHEMA:
        return
    tool, _, version = name.partition("/") if isinstance(name, str) else ("", "", "")
    newest = CHECK_SCHEMA.partition("/")[2]
    if tool == _NAME and version.isascii() and version.isdigit() and version.strip("0"):
        newer = len(version) > 4 or int(version) > int(newest)
        raise CheckFileError(
            f"{path} is a check of schema version {version[:20]}, but this stallscope reads version {newest}: "
            + ("upgrade it" if newer else "save the check again")
        )
    kind = tool.removeprefix("stallscope.")
    what = f"what `stallscope {kind} --json` writes, not a check" if tool in _OTHERS else "not a check of stallscope"
    raise CheckFileError(f"{path} is {what}: name a file that `stallscope check --save` wrote")


def _chunks(matrix: Matrix, path: Path | str, progress: Callable[[float], None]) -> Iterator[bytes]:
    """The document as text in chunks, one line per cell, so that it is never in memory as a whole."""
    size, limit = 0, check_reader.CheckSize(len(matrix.hosts))

    def counted(text: str) -> bytes:
        nonlocal size
        chunk = text.encode()
        size += len(chunk)
        if size > limit.bytes:
            raise CheckFileError(
                f"{path} would be larger than {limit.bytes >> 20} MiB, the largest that can be read: check "
                "fewer victims"
            )
        return chunk

    own = _Detectable.of(matrix)
    sources = _Sources(matrix)
    baselines = _BaselineTexts(keep=not matrix.hosts)
    yield counted(f'{_json(_head(matrix, own))[:-1]},"cells":[')
    for number, cell in enumerate(matrix.cells.values()):
        progress(number / len(matrix.cells))
        yield counted(f'{"," if number else ""}\n{_json(_cell_head(cell, own, sources))[:-1]},"repeats":[')
        for place, repeat in enumerate(cell.repeats):
            yield counted(f"{',' if place else ''}{baselines.repeat(repeat)}")
        yield counted("]}")
    yield counted("\n]}\n")


class _BaselineTexts:
    """Texts of the baselines of one check, of which each serves several cells; those of a merged one are not kept."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        # By identity, with the object itself, so that no other one can have it.
        self._texts: dict[int, tuple[ChannelMap, str]] = {}

    def repeat(self, repeat: Repeat) -> str:
        """``repeat`` as JSON text, what ``_json`` makes of ``_repeat_out``."""
        if not self._keep:
            return _json(_repeat_out(repeat))
        head = _json({"host": clean(repeat.host), "calls": repeat.window.iterations, "window_s": repeat.window.seconds})
        channels = _json(_channels_out(repeat.window.channels))
        before, after = self._text(repeat.before), self._text(repeat.after)
        return f'{head[:-1]},"channels":{channels},"before":{before},"after":{after}}}'

    def _text(self, channels: ChannelMap) -> str:
        known = self._texts.get(id(channels))
        if known is None:
            known = self._texts[id(channels)] = channels, _json(_channels_out(channels))
        return known[1]


def _json(value: object) -> str:
    return escaped_json(json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False))


def _head(matrix: Matrix, own: _Detectable) -> dict[str, Any]:
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
        "timeline": matrix.timeline,
        **({} if matrix.timeline_summary is None else {"timeline_status": plain(matrix.timeline_summary.document())}),
        "detectable": own.summary,
        "spread": None,
        "reference": None,
        "fingerprint": plain(matrix.fingerprint),
        "hosts": {clean(name): plain(of) for name, of in matrix.hosts.items()},
        "rows": [plain(asdict(row)) for row in matrix.rows],
        "columns": [plain(asdict(column)) for column in matrix.columns],
    }


def _cell_out(cell: Cell, own: _Detectable, sources: _Sources) -> dict[str, Any]:
    return {**_cell_head(cell, own, sources), "repeats": [_repeat_out(repeat) for repeat in cell.repeats]}


def _cell_head(cell: Cell, own: _Detectable, sources: _Sources) -> dict[str, Any]:
    """``cell`` as JSON types, without its repeats, of which there is one for each host."""
    return {
        "row": clean(cell.row),
        "column": clean(cell.column),
        "status": str(cell.status),
        "reason": plain(cell.reason),
        "hosts": [plain(asdict(host)) for host in cell.hosts],
        "in_flight_us": _us(cell.in_flight_ns),
        "in_flight_op": plain(cell.in_flight_op),
        "figures": figures(cell, own.ratios.get((cell.row, cell.column), {}), sources),
        "verdicts": [_verdict_out(verdict) for verdict in cell.verdicts],
    }


def _repeat_out(repeat: Repeat) -> dict[str, Any]:
    return {
        "host": clean(repeat.host),
        "calls": repeat.window.iterations,
        "window_s": repeat.window.seconds,
        "channels": _channels_out(repeat.window.channels),
        "before": _channels_out(repeat.before),
        "after": _channels_out(repeat.after),
    }


@dataclass(frozen=True)
class _Detectable:
    """The ratios that a comparison with another check like ``matrix`` could detect: by cell, and the summary."""

    ratios: Mapping[tuple[str, str], Mapping[tuple[Channel, Quantile], float | None]]
    summary: dict[str, Any] | None

    @classmethod
    def of(cls, matrix: Matrix) -> _Detectable:
        """Those of ``matrix``; none for a merged one, whose hosts are no repeats of each other."""
        if matrix.hosts:
            return cls({}, None)
        # The rules of a comparison load the catalogue, which a reader does without.
        from stallprobes.matrix.comparing.compare import compare

        comparison = compare(matrix, matrix)
        ratios = {
            (cell.row, cell.column): {(part.channel, part.quantile): part.detectable for part in cell.parts}
            for cell in comparison.cells
        }
        return cls(ratios, {str(quantile): shares(one) for quantile, one in comparison.sensitivity().items()})


class _Sources:
    """What measured the phases of a matrix. Without the timeline, a time on the GPU is that of pairs of events."""

    def __init__(self, matrix: Matrix) -> None:
        self._timeline = matrix.timeline
        self._entries = {row.name: row.entry for row in matrix.rows}
        self._known: dict[tuple[str, Phase], Source] = {}

    def of(self, row: str, phase: Phase) -> Source:
        """The source of ``phase`` in the cells of a row."""
        if phase.traits.host or not self._timeline:
            return Source.HOST if phase.traits.host else Source.EVENTS
        key = (self._entries[row], phase)
        if key not in self._known:
            from stallprobes.catalog import entries

            # A victim that is not in the catalogue has no pairs of events.
            entry = entries().get(key[0])
            self._known[key] = Source.TIMELINE if entry is None else entry.probe().program.source(phase)
        return self._known[key]


def figures(
    cell: Cell, detectable: Mapping[tuple[Channel, Quantile], float | None], sources: _Sources
) -> dict[str, dict[str, Any]]:
    """The figures of each channel of ``cell``: percentiles in microseconds and those of the baseline, their ratios, and
    the number of calls. A percentile or ratio is None without calls.
    """
    return {_channel_out(channel): _figures(cell, channel, detectable, sources) for channel in cell.channels}


def _figures(
    cell: Cell,
    channel: Channel,
    detectable: Mapping[tuple[Channel, Quantile], float | None],
    sources: _Sources,
) -> dict[str, Any]:
    now, baseline = cell.channels[channel], cell.baseline.get(channel)
    found: dict[str, Any] = {"source": str(sources.of(cell.row, channel.phase))}
    for quantile in PERCENTILES:
        ratio = BaselineRatio.of(cell.channels, cell.baseline, channel, quantile)
        found[f"{quantile}_us"] = _us(now.percentile(quantile.percent))
        found[f"baseline_{quantile}_us"] = None if baseline is None else _us(baseline.percentile(quantile.percent))
        found[f"ratio_{quantile}"] = None if ratio is None else _rounded(ratio.ratio)
        found[f"detectable_{quantile}"] = _rounded(detectable.get((channel, quantile)))
    return {**found, "calls": now.count}


def _verdict_out(verdict: Verdict) -> dict[str, Any]:
    return {
        "probe": clean(verdict.probe),
        "phase": None if verdict.phase is None else str(verdict.phase),
        "quantile": str(verdict.quantile),
        "baseline_us": _us(verdict.baseline_ns),
        "range_us": None if verdict.range_ns is None else [_us(ns) for ns in verdict.range_ns],
        "now_us": _us(verdict.now_ns),
        "ratio": _rounded(verdict.ratio),
        "detectable": _rounded(verdict.detectable),
        "kind": str(verdict.kind),
        "proof": str(verdict.proof),
        "host": clean(verdict.host),
        "head": clean(verdict.head),
        "cause": clean(verdict.cause),
        "remedy": clean(verdict.remedy),
        "sentence": clean(verdict.sentence),
    }


def _channels_out(channels: ChannelMap) -> dict[str, Any]:
    return {
        _channel_out(channel): {"max_ns": one.max_ns, "histogram": one.pairs()} for channel, one in channels.items()
    }


def _channel_out(channel: Channel) -> str:
    return f"{channel.phase}:{clean(channel.label)}" if channel.label else str(channel.phase)


def _us(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)
