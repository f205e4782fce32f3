"""Layout of the memory by which stallscope wakes the injected library of a process and lets it fall asleep, and of the
block that the attacher leaves in a process for its stub.

The control lies in a memfd of the process, whose name begins with ``CONTROL_NAME``. stallscope writes a request and
increases ``asked``, on which the library's thread waits; the library sets ``answered`` to it when the request is done.
All values are little-endian; each word has one writer.
"""

import ctypes
from enum import IntEnum
from typing import Annotated, Any

from stallprobes.native.layouts.structure import Int32, Int64, UInt32, UInt64, structure

CONTROL_FORMAT = 3
CONTROL_MAGIC = int.from_bytes(b"stallsc1", "little")
CONTROL_NAME = "stallscope-control"
# Begin of the name of the memfd with the file of a recording; the process's own number and that of the file follow.
RECORDING_NAME = "stallscope-watch-"
# In the paths of modules: the library has no file where the attacher loads it.
LIBRARY_NAME = "stallscope-inject.so"
# The same for a libcupti that was sent to a process.
SENT_CUPTI_NAME = "libcupti.so"
# The function that the attacher calls in the library. No other library has one of this name.
ENTRY = "stallscope_attach_library"
# Set to 1: the library sleeps from the start until it is woken.
ASLEEP_VARIABLE = "STALLSCOPE_WATCH_ASLEEP"

CUPTI_TEXT = 1024


class ControlState(IntEnum):
    """What the library does: it sleeps, begins to record, records, or ends that.

    FAILED: it sleeps, since recording could not begin, for the reason in ``recording`` and ``code``; where there is no
    file (WatchState.STARTING), for that in ``lack``.
    """

    ASLEEP = 0
    STARTING = 1
    AWAKE = 2
    STOPPING = 3
    FAILED = 4


class StubState(IntEnum):
    """How far the attacher's stub in a process has come: prepared, begun, inside ``dlopen``, inside the library's
    entry, done."""

    PREPARED = 0
    BEGUN = 1
    LOADING = 2
    ENTERED = 3
    DONE = 4


@structure
class Control(ctypes.Structure):
    """What stallscope asks of the library, and its answers.

    ``pid`` is the process's number in its own namespace, ``start_ticks`` when it began, as in /proc. ``wish`` is 1 for
    recording to a memfd with ``slow_ns``, ``cost_ppm`` and ``flags`` (``Flag``), 0 for sleep. ``cupti`` is the
    libcupti to load where the process has none, or one that records no context switches. ``recording`` is a
    ``WatchState``; ``code`` and ``step`` are the result and the name of the last function that was called.
    ``began_ns`` and ``ready_ns`` are when the last request was begun and done (CLOCK_MONOTONIC). ``held_ns`` is the
    longest time in which calls of the program may have been held up since the last recording began. ``stub_at`` and
    ``stub_bytes`` are the attacher's memory, to be returned. ``lack`` is the ``Lack`` for which there is no file, of
    which ``lack_needed`` bytes, descriptors or threads are needed and ``lack_available`` are there; 0 where neither is
    known. The memfd is sealed: it has this size for good.

    Where the process finds no file of a libcupti, ``sends_cupti`` is 1: the library makes a memfd, whose number plus 1
    it writes to ``cupti_descriptor``, and waits until stallscope has filled it and set ``cupti_sent``. In the
    same way it waits, before a recording begins, until stallscope has taken the memfd ``file_descriptor`` and set
    ``file_taken``.
    """

    magic: UInt64
    format: UInt32
    pid: UInt32
    start_ticks: UInt64
    asked: UInt32
    answered: UInt32
    wish: UInt32
    flags: UInt32
    slow_ns: UInt64
    cost_ppm: UInt64
    stub_at: UInt64
    stub_bytes: UInt64
    state: UInt32
    recording: UInt32
    code: Int32
    sends_cupti: UInt32
    cupti_descriptor: UInt32
    cupti_sent: UInt32
    file_descriptor: UInt32
    file_taken: UInt32
    began_ns: UInt64
    ready_ns: UInt64
    held_ns: UInt64
    lack_needed: UInt64
    lack_available: UInt64
    lack: UInt32
    unused: UInt32
    step: Annotated[bytes, ctypes.c_char * 48]
    cupti: Annotated[bytes, ctypes.c_char * CUPTI_TEXT]


@structure
class Stub(ctypes.Structure):
    """What the attacher's stub uses, in memory of its own in the process.

    The addresses are of functions of the process's C library. ``frame`` is what ``rt_sigreturn`` restores,
    ``interrupted`` the instruction behind the system call in which the thread was; where a signal is pending that
    ``mask`` does not block, that call ends with EINTR, else it is made again. ``began`` and ``ended`` are times of
    CLOCK_MONOTONIC (s, ns). ``result`` is that of the library's entry, a ``Lack`` where its control could not be made,
    -1 without an entry; then ``error`` says why.
    """

    dlopen: UInt64
    dlsym: UInt64
    dlerror: UInt64
    errno_location: UInt64
    frame: UInt64
    interrupted: UInt64
    all_signals: UInt64
    mask: UInt64
    pending: UInt64
    began: Annotated[Any, ctypes.c_int64 * 2]
    ended: Annotated[Any, ctypes.c_int64 * 2]
    handle: UInt64
    result: Int64
    descriptor: Int64
    state: UInt32
    kept_errno: Int32
    path: Annotated[bytes, ctypes.c_char * 64]
    entry: Annotated[bytes, ctypes.c_char * 64]
    error: Annotated[bytes, ctypes.c_char * 512]
