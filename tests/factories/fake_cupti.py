"""A libcupti of our own: it hands over the records that a test puts into it, through the real native callbacks."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Any

from stallprobes.native.layouts.cupti import RECORDS, RecordKind, size_of
from stallprobes.records.libcupti import Cupti

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 11)
_REQUESTED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_SUBSCRIBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
ENTER, EXIT = 0, 1
END_OF_BUFFER = 12
UNKNOWN = 999
NEWEST = 130_500


def record(kind: RecordKind, version: int = NEWEST, **fields: int) -> bytes:
    """A record with these fields, all other bytes 0xA5, so that a wrong offset shows."""
    raw = bytearray(b"\xa5" * size_of(kind, version))
    row: Any = RECORDS[kind].from_buffer(raw)
    row.kind = kind
    for name, value in fields.items():
        setattr(row, name, value)
    return bytes(raw)


def request(native: Mapping[str, int]) -> tuple[int, int]:
    """Address and size of a buffer from the callback; 0 and 0 if there is none."""
    buffer, size, most = ctypes.c_int64(-1), ctypes.c_int64(-1), ctypes.c_int64(-1)
    _REQUESTED(native["requested"])(ctypes.addressof(buffer), ctypes.addressof(size), ctypes.addressof(most))
    assert most.value == 0
    return buffer.value, size.value


def complete(native: Mapping[str, int], buffer: int, size: int, valid: int) -> None:
    """Return a buffer to the callback."""
    _COMPLETED(native["completed"])(None, 0, buffer, size, valid)


class FakeCupti(Cupti):
    """CUPTI as the collector calls it. ``refused`` are the codes of calls, by function or by the kind enabled.

    Contexts and streams have their handles as numbers. ``fails_at`` is the number (from 1) of the call by address that
    returns UNKNOWN and does nothing, 0 for none; ``calls`` are the functions that were called so.
    """

    def __init__(self, version: int = NEWEST, refused: Mapping[str | int, int] | None = None) -> None:
        self.path = "/nowhere/libcupti.so.13"
        self.version = version
        self.refused = dict(refused or {})
        self.enabled: set[int] = set()
        self.left_out: set[int] = set()
        self.subscribed = False
        self.subscriptions = 0
        self.callback = 0
        self.detached = 0
        self.dropped = 0
        self.flags: list[int] = []
        self.native: dict[str, int] = {}
        self._queue: list[bytes] = []
        self._lock = threading.Lock()
        self.flushed = threading.Event()
        self.most_kinds: set[int] = set()
        self.fails_at = 0
        self.calls: list[str] = []
        functions: dict[str, Callable[..., int]] = {
            "cuptiActivityFlushAll": self._flush,
            "cuptiActivityGetNextRecord": self._next,
            "cuptiActivityGetNumDroppedRecords": self._count_dropped,
            "cuptiActivityRegisterCallbacks": lambda requested, completed, *_: self.set_buffers(requested, completed),
            "cuptiActivityEnable": lambda kind, *_: self.enable(kind),
            "cuptiActivityDisable": lambda kind, *_: self.disable(kind),
            "cuptiFinalize": self._finalize,
        }
        self._functions = {name: _FUNCTION(self._counted(name, function)) for name, function in functions.items()}

    def _counted(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: int) -> int:
            self.calls.append(name)
            return UNKNOWN if len(self.calls) == self.fails_at else function(*arguments)

        return call

    def put(self, *records: bytes) -> None:
        """Have these records returned by the next flush."""
        with self._lock:
            self._queue += records

    def address(self, function: str) -> int:
        found = self._functions.get(function)
        return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0

    def text(self, code: int) -> str:
        return f"CODE_{code}"

    def subscribe(self, callback: int) -> tuple[int, int]:
        code = self.refused.get("subscribe", 0)
        self.subscribed = code == 0
        self.subscriptions += code == 0
        self.callback = callback
        return code, 0 if code else 77

    def unsubscribe(self, handle: int) -> int:
        assert handle == 77
        self.subscribed = False
        return 0

    def detach(self, handle: int) -> int:
        assert handle == 77
        code = self.refused.get("detach", 0)
        if code == 0:
            for site in (ENTER, EXIT):
                data = ctypes.c_uint32(site)
                _SUBSCRIBER(self.callback)(None, 1, 2, ctypes.addressof(data))
        return code

    def set_timestamps(self, callback: int) -> int:
        assert not self.enabled
        self.native["timestamp"] = callback
        return 0

    def set_system_thread_ids(self) -> int:
        return 0

    def set_buffers(self, requested: int, completed: int) -> int:
        self.native |= {"requested": requested, "completed": completed}
        return 0

    def enable(self, kind: int) -> int:
        code = self.refused.get(int(kind), 0)
        if code == 0:
            self.enabled.add(int(kind))
            self.most_kinds |= self.enabled
        return code

    def leave_out_driver_call(self, number: int) -> int:
        # As CUPTI: the choice holds only for a kind that is on.
        assert RecordKind.DRIVER_CALL in self.enabled
        self.left_out.add(number)
        return 0

    def disable(self, kind: int) -> int:
        self.enabled.discard(int(kind))
        return 0

    def flush(self, flag: int) -> int:
        return int(self._flush(flag))

    def context_number(self, context: int) -> int | None:
        return context

    def stream_number(self, context: int, stream: int) -> int | None:
        return stream

    def _finalize(self, *_: int) -> int:
        assert not self.enabled
        code = self.refused.get("finalize", 0)
        if code == 0:
            self.subscribed = False
            self.detached += 1
        return code

    def _flush(self, flag: int, *_: int) -> int:
        with self._lock:
            queue, self._queue = self._queue, []
        self.flags.append(flag)
        while queue:
            buffer, size = request(self.native)
            if not buffer:
                self.dropped += len(queue)
                break
            taken = b""
            while queue and len(taken) + len(queue[0]) <= size:
                taken += queue.pop(0)
            ctypes.memmove(buffer, taken, len(taken))
            complete(self.native, buffer, size, len(taken))
        self.flushed.set()
        return 0

    def _next(self, buffer: int, valid: int, at: int, *_: int) -> int:
        found = ctypes.c_int64.from_address(at)
        record_at = buffer
        if found.value:
            kind = RecordKind(ctypes.c_uint32.from_address(found.value).value)
            record_at = found.value + size_of(kind, self.version)
        if record_at >= buffer + valid:
            return END_OF_BUFFER
        found.value = record_at
        return 0

    def _count_dropped(self, _context: int, _stream: int, at: int, *_: int) -> int:
        ctypes.c_int64.from_address(at).value, self.dropped = self.dropped, 0
        return 0
