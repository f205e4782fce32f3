"""NumPy's types of the layouts' structures."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from stallprobes.native.layouts.structure import offset_of


@cache
def dtype_of(structure: type[ctypes.Structure]) -> np.dtype[Any]:
    """The structured type of an array of these structures: fields by name, texts as bytes."""
    fields = {name: _form(kind) for name, kind in ((each[0], each[1]) for each in structure._fields_)}
    shown = {name: form for name, form in fields.items() if not name.startswith("unused")}
    return np.dtype(
        {
            "names": list(shown),
            "formats": list(shown.values()),
            "offsets": [offset_of(structure, name) for name in shown],
            "itemsize": ctypes.sizeof(structure),
        }
    )


def _form(kind: Any) -> Any:
    if issubclass(kind, ctypes.Structure):
        return dtype_of(kind)
    if issubclass(kind, ctypes.Array):
        if kind._type_ is ctypes.c_char:
            return f"S{kind._length_}"
        return (_form(kind._type_), (kind._length_,))
    return np.dtype(kind)
