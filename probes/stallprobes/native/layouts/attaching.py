"""Layout of the control of the injected library in a process, and of the attacher's block for its stub.

stallscope wakes the library and puts it to sleep by the control, a memfd of the process whose name begins with
``CONTROL_NAME``. stallscope writes a request and increases ``asked``; the library's thread waits for this word and sets
``answered`` to its value when the request is done. All values are little-endian; each word has one writer.
"""

import ctypes
from enum import IntEnum
from typing import Annotated, Any

from stallprobes.native.layouts.structure import Int32, Int64, UInt32, UInt64, structure

# Version of the layout of a control: the memory in which stallscope and the attached library exchange requests.
# Stallscope refuses a control of another version.
CONTROL_FORMAT = 3
# First 8 bytes of a control, the memory in which stallscope and the attached library exchange requests.
CONTROL_MAGIC = int.from_bytes(b"stallsc1", "little")
# Name of the memfd of a control, the memory in which stallscope and the attached library exchange requests.
CONTROL_NAME = "stallscope-control"
# Beginning of the name of the memfd in which an attached process records. The process id and the number of the file
# follow.
RECORDING_NAME = "stallscope-watch-"
# File name of the injected library in a process's list of modules, also if the attacher has loaded it from memory.
LIBRARY_NAME = "stallscope-inject.so"
# File name, in a process's list of modules, of a libcupti that stallscope has sent to the process.
SENT_CUPTI_NAME = "libcupti.so"
# Function of the injected library that the attacher calls; no other library has a function of this name.
ENTRY = "stallscope_attach_library"
# Environment variable of the injected library: with 1, the library records nothing until stallscope requests recording
# through the control, the shared memory for requests.
ASLEEP_VARIABLE = "STALLSCOPE_WATCH_ASLEEP"

# Size (bytes) of the path of libcupti in a request to the attached library, with the final zero. A longer path is
# refused.
CUPTI_TEXT = 1024


class ControlState(IntEnum):
    """State of the library.

    ASLEEP: the library records nothing. STARTING: a recording begins. AWAKE: the library records. STOPPING: a recording
    ends. FAILED: the library records nothing, since a recording could not begin. ``recording`` and ``code`` have the
    reason. If the recording has no file (WatchState.STARTING), ``lack`` has the reason.
    """

    ASLEEP = 0
    STARTING = 1
    AWAKE = 2
    STOPPING = 3
    FAILED = 4


class StubState(IntEnum):
    """Progress of the attacher's stub in a process: prepared, begun, inside ``dlopen``, inside the library's entry,
    done."""

    PREPARED = 0
    BEGUN = 1
    LOADING = 2
    ENTERED = 3
    DONE = 4


@structure
class Control(ctypes.Structure):
    """Requests of stallscope to the library, and its answers.

    The process and the request:

    - ``pid``: the process's number in its own namespace.
    - ``start_ticks``: when it began, as in /proc.
    - ``wish``: 1 for recording to a memfd with ``slow_ns``, ``cost_ppm`` and ``flags`` (``Flag``), 0 for sleep. The
      memfd is sealed, so that its size is fixed.
    - ``cupti``: the libcupti to load for a process without a libcupti, or with one that records no context switches.
    - ``began_ns`` and ``ready_ns``: begin and end of the last request (CLOCK_MONOTONIC).
    - ``stub_at`` and ``stub_bytes``: the attacher's memory, to be returned.

    The library's answers:

    - ``recording``: a ``WatchState``.
    - ``code`` and ``step``: result and name of the last called function.
    - ``held_ns``: longest time for which calls of the program may have been held up since the last recording began.
    - ``lack``: the ``Lack`` that left the recording without a file.
    - ``lack_needed`` and ``lack_available``: bytes, descriptors or threads that are needed and available; both are 0 if
      unknown.

    Where the process finds no file of a libcupti, ``sends_cupti`` is 1: the library makes a memfd, whose number plus 1
    it writes to ``cupti_descriptor``, and waits until stallscope has filled it and set ``cupti_sent``. In the same way
    it waits, before a recording begins, until stallscope has taken the memfd ``file_descriptor`` and set
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
    """Data of the attacher's stub, in memory of its own in the process.

    The addresses are of functions of the process's C library. ``frame`` is the frame that ``rt_sigreturn`` restores,
    ``interrupted`` the instruction behind the interrupted system call of the thread; the call ends with EINTR if a
    signal is pending that ``mask`` does not block, else the thread makes it again. ``began`` and ``ended`` are times of
    CLOCK_MONOTONIC (s, ns). ``result`` is the result of the library's entry, a ``Lack`` if its control could not be
    made, -1 without an entry; then ``error`` says why.
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
