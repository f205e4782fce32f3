"""Layout of the board, the shared memory that the probes' loops and the timeline write and the session reads.

Times are ns of CLOCK_MONOTONIC, or of the simulated clock. Every word has one writer, and the words of different
writers lie in different cache lines.
"""

import ctypes
import os
from enum import IntEnum
from typing import Annotated, Any

from stallprobes.native.layouts.structure import Int64, LineInt64, NextLine, structure

# Version of the layout of the board (the shared memory of an engine and its session); another version is not read.
LAYOUT_VERSION = 6
# First 8 bytes of a board, the shared memory of an engine and its session.
BOARD_MAGIC = 0x5354_414C_4C42_4F41  # "STALLBOA"
# Alignment (bytes) of the sections of the board, the shared memory of an engine and its session.
ALIGN = 128

# Number of entries in a probe's ring of measured calls. A newer call replaces the oldest.
SAMPLES = 4_096
# Number of entries in a probe's ring of host calls for the timeline. A newer call replaces the oldest.
HOST_CALLS = 8_192
# Number of entries in the ring of records of GPU work. A newer record replaces the oldest.
GPU_RECORDS = 16_384
# Number of 64-bit words for the sensors of a simulated GPU on the board, the shared memory of an engine and its
# session.
SENSOR_WORDS = 32

# Bit of ``HostCall.op``: the call was measured.
CALL_MEASURED = 1 << 32
# Bit of ``HostCall.op``: the call was of the probe's very first iteration.
CALL_FIRST = 1 << 33
# Bits of ``HostCall.op`` with the index of the operation.
CALL_OP_MASK = (1 << 32) - 1


class ProbeState(IntEnum):
    """State of a probe's loop.

    NEW: the loop has not begun. PARKED: the probe is switched off. RUNNING: the probe is switched on. ENDED: the loop
    has ended on request. ERROR: a call returned a code that the probe does not accept, and the probe makes no further
    calls.
    """

    NEW = 0
    PARKED = 1
    RUNNING = 2
    ENDED = 3
    ERROR = 4


class EngineState(IntEnum):
    """State of the engine."""

    STARTING = 0
    READY = 1
    STOPPING = 2
    FAILED = 3


@structure
class BoardHeader(ctypes.Structure):
    """The board's first words.

    ``size`` is that of the board in bytes and ``digest`` that of its probes and channels; the session writes them, and
    ``quit``. The engine writes its state, the simulated clock and the number of the present hold, 0 for none; the
    second process its heartbeat; a simulated GPU its sensors, in the order of ``simulated_telemetry.SENSORS``.
    """

    magic: Int64
    version: Int64
    size: Int64
    digest: Int64
    quit: LineInt64
    engine_state: LineInt64
    engine_heartbeat_ns: Int64
    clock_ns: Int64
    hold: Int64
    second_heartbeat_ns: LineInt64
    sensors: Annotated[Any, ctypes.c_int64 * SENSOR_WORDS, NextLine()]


@structure
class TimeCounter(ctypes.Structure):
    """A counter of time. While it counts, ``changes`` is odd and the time now - ``offset_ns``, else ``total_ns``."""

    changes: Int64
    offset_ns: Int64
    total_ns: Int64


@structure
class ProbeWords(ctypes.Structure):
    """The words of a probe.

    The session writes ``run`` and ``period_ns``; the loop what follows up to the error, whose words have a line of
    their own; the engine the rest.

    - ``inflight_op``: the number of the op in flight from 1, 0 for none.
    - ``samples`` and ``host_calls``: numbers of all entries ever put into the rings.
    - ``held``: the number of the hold in which the loop rests, or rested last.
    - ``slot``: the time in which the probe was allowed to run.
    - ``not_alone``: the time beside a call of another group.
    - ``opens_ns``: the earliest time at which its slot opens unless a probe is switched.
    """

    run: Int64
    period_ns: Int64
    state: LineInt64
    iterations: Int64
    heartbeat_ns: Int64
    inflight_op: Int64
    inflight_since_ns: Int64
    due_ns: Int64
    samples: Int64
    on_since_ns: Int64
    missed: Int64
    due_allowed_ns: Int64
    polled_ns: Int64
    paused_ns: Int64
    host_calls: Int64
    held: Int64
    error_code: LineInt64
    error_op: Int64
    error_ns: Int64
    proof: LineInt64
    guard_address: LineInt64
    guard_ahead: Int64
    due_channel: Int64
    lead_ns: Int64
    aligned: Int64
    slot: Annotated[TimeCounter, TimeCounter, NextLine()]
    not_alone: Annotated[TimeCounter, TimeCounter]
    opens_ns: Int64


@structure
class ChannelStats(ctypes.Structure):
    """Statistics of a channel besides its histogram; ``first_ns`` is the value of the first iteration, -1 before it."""

    count: Int64
    sum_ns: Int64
    max_ns: Int64
    first_ns: Int64


@structure
class Sample(ctypes.Structure):
    """A measured call: when it ended, its channel, and its value in ns."""

    end_ns: Int64
    channel: Int64
    value_ns: Int64


@structure
class HostCall(ctypes.Structure):
    """A call as the timeline keeps it. ``op`` has the bits CALL_MEASURED and CALL_FIRST."""

    began_ns: Int64
    returned_ns: Int64
    op: Int64
    iteration: Int64


@structure
class TimelineWords(ctypes.Structure):
    """The words of the timeline. ``records`` is the number of GPU records that were ever published.

    ``collected_ns`` is the time up to which records have arrived. The counts: ``dropped`` by CUPTI, ``exhausted``
    requests of CUPTI without a free buffer, ``unmatched`` pieces of work without a call, ``unanswered`` calls without a
    record, ``unknown`` records of kinds without a layout.
    """

    on: Int64
    started_ns: Int64
    stopped_ns: Int64
    records: LineInt64
    dropped: Int64
    exhausted: Int64
    unmatched: Int64
    unanswered: Int64
    collected: Int64
    rounds: Int64
    flush_ns: Int64
    decode_ns: Int64
    pending: Int64
    code: Int64
    unknown: Int64
    collected_ns: Int64


@structure
class GpuRecord(ctypes.Structure):
    """A record of GPU work, of an overhead, or of a context switch, which has a start only.

    ``sequence`` is the record's number from 1, 0 while it is written. ``subkind`` is a copy's direction, an overhead's
    reason or a switch's operation; ``memory`` the kind of source memory plus 256 times that of the target. ``probe``,
    ``op`` and ``iteration`` are those of the call that submitted the work, and ``began_ns`` and ``returned_ns`` its
    times; -1 each if the call is not known.
    """

    sequence: Int64
    kind: Int64
    start_ns: Int64
    end_ns: Int64
    device: Int64
    context: Int64
    stream: Int64
    correlation: Int64
    probe: Int64
    op: Int64
    began_ns: Int64
    returned_ns: Int64
    subkind: Int64
    memory: Int64
    bytes: Int64
    iteration: Int64


def create_shared_memory() -> int:
    """File descriptor of a new anonymous memory block of size 0; ``Board.create`` sets its size. Raises OSError."""
    return os.memfd_create("stallscope", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
