"""Probe threads of an engine, and the hold of all of them.

A thread runs its probe's setup ops, the loop, and the teardown. In a hold all probe threads of a process rest between
two iterations, so that no thread is in a driver call.
"""

from __future__ import annotations

import ctypes
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from stallprobes.engine.backend import ProbeFailure, failed_op
from stallprobes.engine.board import Board
from stallprobes.engine.host_resolver import read
from stallprobes.engine.loop import ProbeLoop
from stallprobes.engine.op_table import OpTable
from stallprobes.errors import EXIT_ENGINE, BackendError
from stallprobes.model import Op, Probe, op_name
from stallprobes.native.layouts.board import ProbeState

Explain = Callable[[Op, int], tuple[str, bool]]

# Operation of prctl(2) that names the thread.
_PR_SET_NAME = 15
# Operation of prctl(2) that sets how late (ns) a sleep may end.
_PR_SET_TIMERSLACK = 29
# Period (s) at which the engine checks whether a started probe's thread has finished its setup or has failed.
_SETTLE_STEP_S = 0.001
# Period (s) at which the engine checks whether all loops are held (begin no iteration).
_HOLD_STEP_S = 0.0005
# States in which a loop makes no further calls. A hold (after which no loop begins an iteration) does not wait for a
# loop in such a state.
_WITHOUT_CALLS = (ProbeState.ENDED, ProbeState.ERROR)


class ProbeThread:
    """The thread of one probe. ``init`` is called first in the thread, to make a context current.

    ``error`` is the exception that ended the thread, None if there was none. ``number`` is the kernel's number of the
    thread, 0 before it runs.
    """

    def __init__(self, probe: Probe, table: OpTable, board: Board, init: Callable[[], None] | None = None) -> None:
        self.probe = probe
        self._table = table
        self._init = init
        self._part = board[probe.name]
        self._part.words.guard_address = table.guard_address
        self._part.words.guard_ahead = table.guard_ahead
        self._part.words.aligned = probe.program.aligned
        self._runner = ProbeLoop(board, self._part, table.ops, table.setup, table.teardown, table.undo)
        self._thread = threading.Thread(target=self._run, name=probe.name, daemon=True)
        self._reported = False
        self.error: BaseException | None = None
        self.number = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def settled(self) -> bool:
        """True if the setup ops are done or have failed."""
        return self._part.words.state != ProbeState.NEW or not self._thread.is_alive()

    def copy_proof(self) -> None:
        """Copy the program's proof word, if it has one, to the board."""
        if self._table.proof_address:
            self._part.words.proof = read(self._table.proof_address)

    def failure(self, explain: Explain) -> ProbeFailure | None:
        """The unexpected return code that stopped the probe; None if there is none or it was returned before."""
        if self._reported or self._part.words.state != ProbeState.ERROR:
            return None
        self._reported = True
        op = failed_op(self.probe.program, self._part.words.error_op)
        code = self._part.words.error_code
        text, fatal = explain(op, code)
        return ProbeFailure(self.probe.name, op_name(op), code, text, fatal)

    def join(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the end of the thread; False if it has not ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.number = threading.get_native_id()
        libc = ctypes.CDLL(None)
        # The default timer slack of 50 us would be part of every sleep.
        libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        libc.prctl(_PR_SET_NAME, self.probe.name.encode()[:15], 0, 0, 0)
        try:
            if self._init is not None:
                self._init()
            self._runner()
        except BaseException as error:
            traceback.print_exc()
            self.error = error


class ProbeThreads:
    """All probe threads of an engine."""

    def __init__(self) -> None:
        self._threads: list[ProbeThread] = []

    def add(self, probe: Probe, table: OpTable, board: Board, init: Callable[[], None] | None = None) -> None:
        """Add the thread of a probe; to be called before ``start``."""
        self._threads.append(ProbeThread(probe, table, board, init))

    def start(self) -> None:
        """Start all threads, one setup at a time; returns when each is parked or has failed.

        Raises BackendError if a thread ended with an exception.
        """
        for thread in self._threads:
            thread.start()
            while not thread.settled:
                time.sleep(_SETTLE_STEP_S)
        self._raise_error()

    def poll(self, explain: Explain) -> list[ProbeFailure]:
        """Copy proof words to the board; returns the probes that failed since the last call.

        ``explain`` gives the text of a return code and whether it is fatal for all probes. Raises BackendError if a
        thread ended with an exception.
        """
        self._raise_error()
        for thread in self._threads:
            thread.copy_proof()
        failures = (thread.failure(explain) for thread in self._threads)
        return [failure for failure in failures if failure is not None]

    def numbers(self) -> dict[str, int]:
        """The kernel's number of each probe's thread."""
        return {thread.probe.name: thread.number for thread in self._threads}

    def stop(self, deadline_s: float) -> bool:
        """Wait at most ``deadline_s`` for all threads to end after QUIT was set; False if one has not ended."""
        until = time.monotonic() + deadline_s
        ended = [thread.join(max(until - time.monotonic(), 0)) for thread in self._threads]
        return all(ended)

    def _raise_error(self) -> None:
        for thread in self._threads:
            if isinstance(thread.error, BackendError):
                raise thread.error
            if thread.error is not None:
                what = f"{type(thread.error).__name__}: {thread.error}"
                raise BackendError(EXIT_ENGINE, f"{thread.probe.name}: the probe thread ended with {what}")


class ProbeHold:
    """Holds the loops of the probes ``names``. Only one thread may use it, but for ``end_if_longer_than``.

    A loop begins its schedule anew after a hold, so no call counts as late because of it.
    """

    def __init__(self, board: Board, names: Sequence[str], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._header = board.header
        self._words = [board[name].words for name in names]
        self._clock_ns = clock_ns
        self._number = 0
        self._begun_ns = 0

    def begin(self, seconds: float) -> bool:
        """Hold the loops; False, and without a hold, if one has not come to rest within ``seconds``."""
        self._number += 1
        self._begun_ns = self._clock_ns()
        self._header.hold = self._number
        until = self._begun_ns + round(seconds * 1e9)
        while not all(words.held == self._number or words.state in _WITHOUT_CALLS for words in self._words):
            if self._clock_ns() > until:
                self.end()
                return False
            time.sleep(_HOLD_STEP_S)
        return True

    def end(self) -> None:
        """Let the loops continue."""
        self._header.hold = 0

    def end_if_longer_than(self, seconds: float) -> None:
        """Let the loops continue if they have been held for more than ``seconds``."""
        if self._header.hold and self._clock_ns() - self._begun_ns > round(seconds * 1e9):
            self.end()

    def has_call_longer_than(self, seconds: float) -> bool:
        """True if a call is in flight that began more than ``seconds`` ago."""
        before = self._clock_ns() - round(seconds * 1e9)
        return any(words.inflight_op and words.inflight_since_ns < before for words in self._words)
