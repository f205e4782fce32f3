"""Kinds of fields, and the decorator that makes a ctypes structure of a class with annotated fields.

A field is written once, as an annotation: its name, its type in Python for the type checker, and its type in C::

    @structure
    class Counter(ctypes.Structure):
        changes: Int64
        offset_ns: Int64
"""

# No postponed annotations here and in the other layouts: the decorator reads them.
import ctypes
from typing import Annotated, Any, NamedTuple, TypeVar

# Size (bytes) of a cache line. Words that different threads write never share a cache line.
CACHE_LINE = 64

# Type variable: class of a ctypes structure.
S = TypeVar("S", bound=type[ctypes.Structure])

Int64 = Annotated[int, ctypes.c_int64]
UInt64 = Annotated[int, ctypes.c_uint64]
Int32 = Annotated[int, ctypes.c_int32]
UInt32 = Annotated[int, ctypes.c_uint32]
UInt16 = Annotated[int, ctypes.c_uint16]
UInt8 = Annotated[int, ctypes.c_uint8]


class Pointer(NamedTuple):
    """Metadata of a field that holds an address: the C type that it points to, such as ``struct ss_sample``."""

    to: str


class Function(NamedTuple):
    """Metadata of a field that holds a function's address: the name of the C type of the pointer."""

    type: str


class NextLine(NamedTuple):
    """Metadata of a field that begins a cache line, because another thread writes the fields before it."""


class At(NamedTuple):
    """Metadata of a field that lies at this offset in bytes, as in a structure of somebody else."""

    offset: int


Address = Annotated[int, ctypes.c_uint64, Pointer("void")]
# The first field of a cache line.
LineInt64 = Annotated[int, ctypes.c_int64, NextLine()]

# What a structure of ctypes does not keep of its fields.
_pointers: dict[tuple[type, str], Pointer | Function] = {}


def structure(declared: S) -> S:
    """The class with the ctypes fields of its annotations. Raises TypeError for a field without a C type."""
    fields: list[tuple[str, Any]] = []
    end = 0
    for name, annotation in declared.__annotations__.items():
        if not hasattr(annotation, "__metadata__"):
            raise TypeError(f"{declared.__name__}.{name} has no C type")
        kind, *more = annotation.__metadata__
        begin = -(-end // ctypes.alignment(kind)) * ctypes.alignment(kind)
        for detail in more:
            if isinstance(detail, (Pointer, Function)):
                _pointers[declared, name] = detail
            wanted = begin
            if isinstance(detail, NextLine):
                wanted = -(-begin // CACHE_LINE) * CACHE_LINE
            elif isinstance(detail, At):
                wanted = detail.offset
            if wanted < begin or wanted % ctypes.alignment(kind):
                raise TypeError(f"{declared.__name__}.{name} cannot lie at {wanted}")
            begin = wanted
        if begin - end >= ctypes.alignment(kind):
            fields.append((f"unused_{end}", ctypes.c_uint8 * (begin - end)))
        fields.append((name, kind))
        end = begin + ctypes.sizeof(kind)
    declared._fields_ = fields
    return declared


def pointer_of(owner: type[ctypes.Structure], field: str) -> Pointer | Function | None:
    """Type to which a field with an address points; None for other fields."""
    return _pointers.get((owner, field))


def offset_of(owner: type[ctypes.Structure], field: str) -> int:
    """The offset of a field in bytes."""
    return int(getattr(owner, field).offset)


def c_name(owner: type[ctypes.Structure]) -> str:
    """The name of a structure in C: ``ss_probe_words`` for ``ProbeWords``."""
    return "ss" + "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in owner.__name__)
