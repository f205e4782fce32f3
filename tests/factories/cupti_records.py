"""Records of CUPTI as the core decodes them."""

from __future__ import annotations

import ctypes

from stallprobes.native.layouts.cupti import Activity
from stallprobes.native.library import core


def decoded(raw: bytes, version: int) -> dict[str, int] | None:
    """The fields of the record at the begin of ``raw``, made by CUPTI of ``version``; None for an unknown kind."""
    # Aligned as CUPTI's buffers are.
    memory = (ctypes.c_uint64 * (len(raw) // 8 + 1))()
    ctypes.memmove(memory, raw, len(raw))
    found = Activity()
    if not core().decode(memory, version, found):
        return None
    return {name: getattr(found, name) for name in (field[0] for field in Activity._fields_)}
