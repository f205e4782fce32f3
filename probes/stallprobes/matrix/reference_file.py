"""Files of references: their text, one line per cell so that a difference between two versions can be read, and
validated reading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stallprobes.errors import CheckFileError, FileNotRead, MalformedJson, OversizedData
from stallprobes.files import codec, input_file
from stallprobes.foreign_text import escaped_json
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.matrix.reference import Reference

# Largest size (bytes) of the file of a reference. A larger file is not read.
_LARGEST = 16 * 1024 * 1024
# Lists in a reference's JSON document. The file has a line for each item of a list.
_LISTS = ("checks", "rows", "columns", "cells")


def text(reference: Reference) -> str:
    """``reference`` as text; equal references give equal text."""
    head = reference.changed(**dict.fromkeys(_LISTS, ()))
    lists: dict[str, Sequence[object]] = {name: getattr(reference, name) for name in _LISTS}
    parts = [f'"{name}":[\n' + ",\n".join(map(_json, items)) + "\n]" for name, items in lists.items()]
    return ",\n".join([_json(head).partition(',"checks":')[0], *parts]) + "}\n"


def _json(value: object) -> str:
    return escaped_json(codec.encoded(value).decode())


def load(path: Path) -> Reference:
    """The reference in the file ``path``. Raises CheckFileError for any other content."""
    try:
        return read(input_file.read(path, _LARGEST))
    except FileNotRead as error:
        raise CheckFileError(str(error)) from error
    except OversizedData:
        raise CheckFileError(f"{path} is not a reference: none is larger than {_LARGEST >> 20} MiB") from None
    except UnicodeDecodeError:
        raise CheckFileError(f"{path} is not a reference: it is not UTF-8") from None
    except MalformedJson as error:
        raise CheckFileError(f"{path} is not a reference: {error}") from error


def read(text_of_document: bytes) -> Reference:
    """The reference in the text of a document. Raises MalformedJson and UnicodeDecodeError."""
    reference = codec.decoded(text_of_document, Reference)
    for key, listed, named in (
        ("rows", reference.rows, set(reference.by_row)),
        ("columns", reference.columns, {column.name for column in reference.columns}),
        ("cells", reference.cells, set(reference.by_place)),
    ):
        if len(named) < len(listed):
            raise MalformedJson(f"{key} has a duplicate name")
    columns = {column.name for column in reference.columns}
    for cell in reference.cells:
        if cell.row not in reference.by_row or cell.column not in columns:
            raise MalformedJson(f"a cell is of {cell.row} and {cell.column}, which are not among the rows and columns")
        for ranges in cell.ratios.values():
            if not ranges.keys() <= set(PERCENTILES) or any(low > high for low, high in ranges.values()):
                raise MalformedJson("cells has a range that is of no percentile, or whose end is below its begin")
    return reference
