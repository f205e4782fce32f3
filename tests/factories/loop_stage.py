"""A stage for the compiled loop: one probe, whose clock, sleep and calls are scripted."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.loop import ProbeLoop, op_rows
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.model import Channel, Op, Probe, Program, Role
from stallprobes.native.layouts.program import ARGUMENTS

START = 1_000_000_000
MS = 1_000_000
ENOUGH = 100_000

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * ARGUMENTS)
CLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))
NAP = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p)


def address_of(native: ctypes._CFunctionType) -> int:
    return ctypes.cast(native, ctypes.c_void_p).value or 0


class Stage:
    """One probe on a board of its own, with a clock that only scripted calls, sleeps and ``tick`` move on."""

    def __init__(self, ops: tuple[Op, ...], period_ns: int = MS, tick: int = 0) -> None:
        program = Program(ops, context=None)
        probe = Probe("p", "p", Role.HOST, program, period_ns, "p")
        self.board = Board.create(BoardLayout.of([probe]))
        self.part = self.board["p"]
        self.words = self.part.words
        self.words.run = 1
        self.words.lead_ns = 0
        self.now = START
        self.tick = tick
        self.reads = 0
        self.naps: list[tuple[int, int]] = []
        self.on_nap: Callable[[], object] = lambda: None
        self._keep: list[object] = []
        self.rows = op_rows(len(ops))
        for row, op in zip(self.rows, ops, strict=True):
            if op.phase is not None:
                row.channel = self.part.channel(Channel(op.phase))
                if op.label:
                    row.label_channel = self.part.channel(Channel(op.phase, op.label))
            row.repeat = op.repeat

    def script(self, op: int, function: Callable[..., int]) -> None:
        """``function`` gets the eleven arguments and returns the 64-bit return."""
        native = FUNCTION(function)
        self._keep.append(native)
        self.rows[op].function = address_of(native)

    def takes(self, op: int, *durations: int) -> None:
        """The op's calls take so long, one after the other, and with the last one it is told to quit."""
        rest = list(durations)

        def call(*_: int) -> int:
            self.now += rest.pop(0)
            if not rest:
                self.quit()
            return 0

        self.script(op, call)

    def quit(self, result: int = 0) -> int:
        """Tells it to quit; returns ``result``, for a last call to return."""
        self.board.header.quit = 1
        return result

    def run(self) -> ProbeSnapshot:
        def clock(_kind: int, time: ctypes._Pointer[ctypes.c_int64]) -> int:
            self.now += self.tick
            self.reads += 1
            time[0], time[1] = divmod(self.now, 10**9)
            if self.reads > ENOUGH:
                self.quit()
            return 0

        def nap(_kind: int, _flags: int, time: ctypes._Pointer[ctypes.c_int64], _rest: int | None) -> int:
            until = time[0] * 10**9 + time[1]
            self.naps.append((self.now, until))
            self.now = max(self.now, until)
            self.on_nap()
            return 0

        native = CLOCK(clock), NAP(nap)
        ProbeLoop(self.board, self.part, self.rows, clock=(address_of(native[0]), address_of(native[1]))).run()
        assert self.reads <= ENOUGH
        return self.board.snapshot(self.now).probes["p"]
