"""The native libraries of this installation, checked before they are loaded, and the core's functions.

A call of the core releases the interpreter lock, except for those of the schedule: they take less time than that. The
core is never unloaded, so addresses in it stay valid.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from pathlib import Path
from typing import Any

from stallprobes.errors import NativeLibraryError
from stallprobes.native.layouts.cupti import Activity, BufferPool
from stallprobes.native.layouts.program import Loop
from stallprobes.native.layouts.schedule import Schedule
from stallprobes.native.layouts.timeline import Collector, Detachment
from stallprobes.native.sources import ATTACHER, CORE, INJECTED, LIBRARIES, RECORD, digest_of_file, digest_of_sources

# Remedy for each problem with the native libraries of this installation.
REMEDY = "reinstall stallscope (in its source tree: pip install -e .)"
# Prefix of the symbol names of the native helpers in the core library.
_HELPER = "ss_helper_"


def problem(folder: Path = LIBRARIES) -> str:
    """The problem of the libraries of this installation, as a clause; "" if nothing."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        built_from, libraries = str(record["sources"]), dict(record["libraries"])
        if built_from != digest_of_sources(folder.parent):
            return f"the native libraries in {folder} were built from other sources"
        for name in (CORE, INJECTED, ATTACHER):
            if digest_of_file(folder / name) != libraries[name]:
                return f"the native library {folder / name} is damaged"
    except FileNotFoundError as error:
        return f"the native libraries are not built ({error.filename} is missing)"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        return f"{folder / RECORD} is damaged"
    return ""


@cache
def _checked(name: str) -> Path:
    reason = problem()
    if reason:
        raise NativeLibraryError(f"{reason}; {REMEDY}.")
    return LIBRARIES / name


def injected_library() -> Path:
    """The path of the library for watched programs. Raises NativeLibraryError unless it is complete and up to date."""
    return _checked(INJECTED)


def attacher() -> Path:
    """The path of the program that attaches to processes. Raises NativeLibraryError as ``injected_library``."""
    return _checked(ATTACHER)


class Core:
    """The loaded core; its functions are those of ``core.h`` and ``cupti.h`` in C.

    ``pool`` are the buffers that CUPTI fills in this process, ``detachment`` what the subscriber's callback does.
    """

    def __init__(self, path: Path) -> None:
        """Load the file. Raises NativeLibraryError."""
        try:
            self._library = ctypes.CDLL(str(path))
            self.pool: BufferPool = BufferPool.in_dll(self._library, "ss_pool")
            self.detachment: Detachment = Detachment.in_dll(self._library, "ss_detachment")
            loop, collector = ctypes.POINTER(Loop), ctypes.POINTER(Collector)
            word = ctypes.c_void_p
            self.run = self._function("ss_run", None, loop)
            self.run_once = self._function("ss_run_once", ctypes.c_int64, loop)
            lock_kept, at = ctypes.PyDLL(str(path), handle=self._library._handle), ctypes.POINTER(Schedule)
            self.schedule_next = self._function("ss_schedule_next", ctypes.c_int, at, library=lock_kept)
            self.schedule_end = self._function("ss_schedule_end", None, at, library=lock_kept)
            self.collect = self._function("ss_collect", None, collector)
            self.collect_once = self._function("ss_collect_once", None, collector, ctypes.c_uint32)
            self.written_at = self._function("ss_written_at", ctypes.c_int64, word, ctypes.c_int64)
            self.decode = self._function("ss_decode", ctypes.c_int, word, ctypes.c_uint32, ctypes.POINTER(Activity))
            self.oldest_completed = self._function("ss_oldest_completed", ctypes.c_int)
            self.release_buffer = self._function("ss_release_buffer", None, ctypes.c_int)
            self.discard_buffers = self._function("ss_discard_buffers", ctypes.c_int64, ctypes.c_int64)
        except (OSError, AttributeError, ValueError) as error:
            raise NativeLibraryError(f"the native library {path} cannot be loaded: {error}; {REMEDY}.") from error

    def address(self, function: str) -> int:
        """The address of a function by its name in C. Raises KeyError for an unknown name."""
        try:
            return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(function) from None

    def helper(self, name: str) -> int:
        """The address of what programs call ``native:NAME``. Raises KeyError for an unknown name."""
        return self.address(_HELPER + name)

    def _function(self, name: str, result: Any, *arguments: Any, library: ctypes.CDLL | None = None) -> Any:
        function = getattr(library or self._library, name)
        function.restype, function.argtypes = result, arguments
        return function


@cache
def core() -> Core:
    """The core of this process. Raises NativeLibraryError if it is missing, damaged, or older than its sources."""
    return Core(_checked(CORE))
