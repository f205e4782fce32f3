"""The compiled program of a probe, checked before C gets it, and its run in the calling thread.

Between the two clock readings of a call there is nothing but the call: no Python, no lock, no allocation. The overhead
equals that of a C program; clock readings in Python would add stalls of milliseconds while another thread is busy.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from stallprobes.engine.board import Board, ProbeSection
from stallprobes.engine.host_resolver import libc_address
from stallprobes.native.layouts.board import ProbeState
from stallprobes.native.layouts.program import ACCEPTED, ARGUMENTS, NONE, Loop, OpFlag, OpRow
from stallprobes.native.library import core

OpRows = ctypes.Array[OpRow]
# Number of the first operation of an iteration, as in ``error_op`` (number of the failed operation). After a failure of
# the first operation, there is nothing to undo. After a failure of a later operation, the loop runs the program's
# ``undo`` operations.
_FIRST_OP = 1
# All flags that an operation may have; a larger value is invalid.
_FLAGS = int(OpFlag.RETURN_IS_VALUE | OpFlag.SAMPLE_IS_FLOAT_MS)


def op_rows(count: int) -> OpRows:
    """Rows without functions: no channel, no accepted code but 0, one call."""
    rows = (OpRow * count)()
    for row in rows:
        row.channel = row.label_channel = NONE
        row.accepted[:] = [NONE] * ACCEPTED
        row.repeat = 1
    return rows


def check_rows(rows: OpRows, channels: int) -> None:
    """Raise ValueError for an op that C must not get; ``channels`` is the number of the probe's histograms.

    C takes every address, channel and count as it stands.
    """
    for number, row in enumerate(rows):
        problem = _problem(row, channels)
        if problem:
            raise ValueError(f"op {number} {problem}")


def _problem(row: OpRow, channels: int) -> str:
    if not row.function:
        return "has no function"
    for what, channel in (("channel", row.channel), ("channel of its label", row.label_channel)):
        if not NONE <= channel < channels:
            return f"counts in the {what} {channel}, of which the probe has {channels}"
    if row.repeat < 1:
        return f"is repeated {row.repeat} times"
    if not 0 <= row.load_mask < 1 << ARGUMENTS:
        return f"loads arguments beyond its {ARGUMENTS} (mask {row.load_mask:#x})"
    if any(row.load_mask >> place & 1 and not row.arguments[place] for place in range(ARGUMENTS)):
        return "loads an argument at the address 0"
    if not 0 <= row.flags <= _FLAGS:
        return f"has the flags {row.flags:#x}"
    if row.flags & OpFlag.SAMPLE_IS_FLOAT_MS and not row.value:
        return "has a sample at the address 0"
    return ""


def _check_words(part: ProbeSection) -> None:
    """Raise ValueError for words of the section with which the loop would write outside it, or never sleep."""
    words, rows = part.words, len(part.stats)
    if not 0 <= words.due_channel < rows:
        raise ValueError(f"the probe counts due times in the channel {words.due_channel}, of which it has {rows}")
    if words.period_ns < 0 or words.lead_ns < 0:
        raise ValueError(f"a period of {words.period_ns} ns and a lead of {words.lead_ns} ns must not be negative")
    if words.guard_address and words.guard_ahead < 1:
        raise ValueError(f"a guard lets the probe be {words.guard_ahead} iterations ahead, and must let it be one")


@dataclass(frozen=True, eq=False)
class ProbeLoop:
    """The program of one probe on its section of a board; calling it runs the probe.

    ``clock`` are the addresses of clock_gettime and clock_nanosleep. Raises ValueError for a program that C must not
    get, and NativeLibraryError.
    """

    board: Board
    part: ProbeSection
    ops: OpRows
    setup: OpRows = field(default_factory=lambda: op_rows(0))
    teardown: OpRows = field(default_factory=lambda: op_rows(0))
    undo: OpRows = field(default_factory=lambda: op_rows(0))
    clock: tuple[int, int] = field(
        default_factory=lambda: (libc_address("clock_gettime"), libc_address("clock_nanosleep"))
    )

    def __post_init__(self) -> None:
        # The library is loaded here and not in the probe's thread, so that its problem is the engine's answer.
        core()
        for rows in (self.ops, self.setup, self.teardown, self.undo):
            check_rows(rows, len(self.part.stats))

    def __call__(self) -> None:
        """Run setup, iterations until the board says so, and teardown, without the GIL.

        After an unexpected return code it returns, and the section's error words name the op. If that was not the
        first one of an iteration, ``undo`` runs before.
        """
        if self.run_once(self.setup):
            return
        self.run()
        if self.part.words.state == ProbeState.ENDED:
            self.run_once(self.teardown)
        elif self.part.words.error_op > _FIRST_OP:
            self.run_once(self.undo)

    def run(self) -> None:
        """Repeat the ops until the board says so, or after an unexpected return code. Raises ValueError."""
        _check_words(self.part)
        core().run(self._arguments(self.ops))

    def run_once(self, rows: OpRows) -> int:
        """Call each op of ``rows``, unmeasured; 0, or after an unexpected return code the op's number from 1."""
        return int(core().run_once(self._arguments(rows)))

    def _arguments(self, rows: OpRows) -> Loop:
        part = self.part
        return Loop(
            ops=ctypes.addressof(rows),
            op_count=len(rows),
            words=ctypes.addressof(part.words),
            hist=part.hist.ctypes.data,
            stats=part.stats.ctypes.data,
            samples=part.samples.ctypes.data,
            host_calls=part.host_calls.ctypes.data,
            header=ctypes.addressof(self.board.header),
            timeline=ctypes.addressof(self.board.timeline.words),
            clock_gettime=self.clock[0],
            clock_nanosleep=self.clock[1],
        )
