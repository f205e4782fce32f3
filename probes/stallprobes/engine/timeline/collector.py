"""Collector: switches CUPTI on and off while the engine runs, and moves its records to the board.

A thread of its own makes all calls of CUPTI, because each of them may wait behind a driver lock that a hung call holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from stallprobes.engine.board import Board
from stallprobes.engine.gpu_work import StreamUse, crosses_gpus
from stallprobes.engine.timeline.tables import CollectorTables
from stallprobes.engine.workers import ProbeHold
from stallprobes.errors import kind_and_text
from stallprobes.model import Context, Probe
from stallprobes.native.layouts.cupti import RecordKind, kinds_of
from stallprobes.native.layouts.timeline import NOT_FINALIZED, PERIOD_NS, USUAL_PATIENCE
from stallprobes.native.layouts.timeline import Collector as CollectorWords
from stallprobes.native.library import core
from stallprobes.records.libcupti import FLUSH_FORCED, Cupti, refusal, without_context_switches
from stallprobes.records.timeline import OFF, TimelineProblem, TimelineStatus, TimelineUnavailable

# Kinds of CUPTI records without which there is no timeline; they are enabled first.
REQUIRED = (RecordKind.KERNEL, RecordKind.COPY)
# Kinds of CUPTI records that are enabled after REQUIRED. The timeline also works if CUPTI lacks some of these kinds.
OPTIONAL = (RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.OVERHEAD, RecordKind.CONTEXT_SWITCH)

# Longest wait (s) until the probes' calls have returned, before CUPTI is attached or detached. Before a detach, a
# second wait for the end of GPU work has the same limit. If a call has already lasted longer than this time, the
# collector does not wait. Reason for the limit: during the wait, no probe can begin an iteration.
_REST_S = 0.25
# Delay (s) before the first retry to detach CUPTI, after calls or GPU work did not end within _REST_S. The delay
# doubles with each retry. Reason: a retry can hold the probes for 2 * _REST_S.
_FIRST_RETRY_S = 1.0
# Longest delay (s) before a retry to detach CUPTI.
_LONGEST_RETRY_S = 60.0
# Longest time (s) of a hold, in which probes begin no iteration. After this time, the hold ends even if CUPTI has not
# returned.
_LONGEST_HOLD_S = 5.0

# Upper bound of the numbers by which CUPTI identifies driver functions; the largest in CUPTI 13.5 is 876. The collector
# makes CUPTI leave out all functions with smaller numbers, except SUBMITTING_CALLS.
_MOST_DRIVER_CALLS = 2_000

# Numbers (CUpti_driver_api_trace_cbid) of the calls that submit work: launches, copies, graphs, batches of copies,
# memsets, and the copies and memsets without a stream.
SUBMITTING_CALLS = (
    307, 442, 277, 279, 281, 421, 422, 423, 319, 426, 514, 515, 776, 777, 796, 797, 216, 220, 428, 430,
    276, 278, 280, 318, 249, 251,
)  # fmt: skip


class Collector:
    """The timeline of an engine. ``switch`` returns at once; ``status`` says what has become of it."""

    def __init__(
        self,
        load: Callable[[], Cupti],
        board: Board,
        probes: Sequence[Probe],
        uses: Sequence[StreamUse],
        threads: Callable[[], Mapping[str, int]],
        read_clock: Callable[[Context], int | None],
        wait_idle: Callable[[float], bool],
    ) -> None:
        """``uses`` are the streams of all probes, ``threads`` gives the kernel's number of each probe's thread.

        ``load`` finds and loads CUPTI when the timeline is switched on, or raises TimelineUnavailable. The other two
        are called in the collector's thread. ``read_clock`` reads the GPU's clock in a context of the engine: its time
        minus CLOCK_MONOTONIC in ns, None if that failed. ``wait_idle`` waits for the end of all work on the streams of
        the probes; False if that took longer than so many seconds.
        """
        self._load = load
        self._board = board
        self._probes = tuple(probes)
        self._uses = tuple(uses)
        self._threads = threads
        self._read_clock = read_clock
        self._wait_idle = wait_idle
        self._hold = ProbeHold(board, [probe.name for probe in probes])
        self._tables: CollectorTables | None = None
        self._contexts: dict[int, Context] = {}
        self._wanted = False
        self._ended = False
        self._changed = threading.Event()
        self._settled = threading.Event()
        self.status: TimelineStatus = OFF
        self._thread: threading.Thread | None = None
        self._words = CollectorWords()
        self._cupti: Cupti | None = None
        # The subscription; 0 once CUPTI is detached from the process.
        self._subscriber = 0
        self._again_s = _FIRST_RETRY_S
        self._enabled: list[int] = []

    def switch(self, on: bool) -> None:
        """Switch the timeline on or off."""
        if self._thread is None:
            if not on:
                return
            self._thread = threading.Thread(target=self._work, name="timeline", daemon=True)
            self._thread.start()
        if on == self._wanted:
            return
        self._settled.clear()
        self._wanted = on
        if not on:
            self._words.stop = 1
        self._changed.set()

    @property
    def settled(self) -> bool:
        """True if the last switch has taken effect or failed."""
        return self._thread is None or self._settled.is_set()

    def limit_hold(self) -> None:
        """End a hold that lasts much too long, because CUPTI does not return: probes must not rest without end."""
        self._hold.end_if_longer_than(_LONGEST_HOLD_S)

    def stop(self, seconds: float) -> bool:
        """Switch it off and end the thread; False if that took longer than ``seconds``."""
        if self._thread is None:
            return True
        self._ended = True
        self.switch(False)
        self._changed.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._ended:
            if not self._changed.wait(self._again_s if self._subscriber else None):
                # A call that lasted when the timeline was switched off may have returned meanwhile.
                self._again_s = min(2 * self._again_s, _LONGEST_RETRY_S)
                with self._at_rest() as resting:
                    if resting:
                        self._detach()
                continue
            self._changed.clear()
            self._words.stop = 0
            # Whoever switches it off clears the wish before setting STOP.
            if self._wanted:
                self._again_s = _FIRST_RETRY_S
                self._run()
            if not self._wanted:
                self._settled.set()

    def _run(self) -> None:
        try:
            tables = self._open()
        except Exception as error:
            self._give_up()
            self._wanted = False
            reason = f"switching it on failed ({kind_and_text(error)})"
            failed = TimelineStatus(False, TimelineProblem.FAILED, reason, "please report this")
            self.status = error.status if isinstance(error, TimelineUnavailable) else failed
            return
        timeline, native = self._board.timeline.words, core()
        timeline.started_ns = timeline.started_ns or self._board.now()
        timeline.on = 1
        if self._wanted:
            self._settled.set()
        native.collect(self._words)
        while not self._words.stop:
            self._read_clocks(tables)
            native.collect(self._words)
        with self._at_rest() as resting:
            # Calls are recorded until the probes rest, as their work is: the last round has both.
            timeline.on = 0
            timeline.stopped_ns = self._board.now()
            self._close()
            self._words.patience = 0
            native.collect_once(self._words, FLUSH_FORCED)
            if resting:
                self._detach()
            elif self._ended:
                self._unsubscribe()
        self.status = replace(self.status, on=False)

    def _open(self) -> CollectorTables:
        """Switch CUPTI on; returns the tables of the compiled loop. Raises TimelineUnavailable."""
        cupti = self._cupti = self._cupti or self._load()
        with self._held():
            self._attach(cupti)
        numbers = self._numbers(cupti)
        tables = self._with_clocks(cupti, numbers)
        shared, crossing = self._shared(numbers), self._crossing(numbers)
        with self._held():
            self._enable(cupti, bool(shared or crossing), with_switches=len(tables.clocks) > 0)
        # Without records of calls, work on a stream of several probes has no owner; work of one probe is in order.
        found_by_id = shared | crossing if RecordKind.DRIVER_CALL in self._enabled else shared
        tables.add_tracks(self._board, self._probes, numbers, self._threads(), found_by_id)
        words = self._words
        tables.connect(words, self._board)
        words.version = cupti.version
        words.flush = cupti.address("cuptiActivityFlushAll")
        words.next_record = cupti.address("cuptiActivityGetNextRecord")
        words.count_dropped = cupti.address("cuptiActivityGetNumDroppedRecords")
        words.period_ns, words.patience = PERIOD_NS, USUAL_PATIENCE
        words.exhausted_before = core().pool.exhausted - self._board.timeline.words.exhausted
        self.status = TimelineStatus(
            on=True,
            note=_note(cupti, self._enabled, clock=len(tables.clocks) > 0),
            library=cupti.path,
            version=cupti.version,
            kinds=tuple(self._enabled),
            contexts={context: use.stream.context.name for use, (context, _) in numbers.items()},
            streams={key: use.stream.name for use, key in numbers.items()},
        )
        # The words have the addresses of these tables.
        self._tables = tables
        return tables

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the probes meanwhile, unless a call lasts.

        To attach CUPTI delays each call by 5 to 15 ms, to enable its kinds by 0.3 ms (H200).
        """
        held = not self._hold.has_call_longer_than(_REST_S) and self._hold.begin(_REST_S)
        try:
            yield
        finally:
            if held:
                self._hold.end()

    def _attach(self, cupti: Cupti) -> None:
        """Become the subscriber, and register clock and buffers. Raises TimelineUnavailable."""
        self._unsubscribe()
        address = core().address
        code, self._subscriber = cupti.subscribe(address("ss_detach"))
        _check(cupti, "cuptiSubscribe", code)
        _check(cupti, "cuptiActivityRegisterTimestampCallback", cupti.set_timestamps(address("ss_timestamp")))
        cupti.set_system_thread_ids()
        code = cupti.set_buffers(address("ss_requested"), address("ss_completed"))
        _check(cupti, "cuptiActivityRegisterCallbacks", code)

    def _with_clocks(self, cupti: Cupti, numbers: Mapping[StreamUse, tuple[int, int]]) -> CollectorTables:
        """The tables with the clock of each GPU; without a clock there are no context switches."""
        self._contexts = {number: use.stream.context for use, (number, _) in numbers.items()}
        tables = CollectorTables(self._contexts, RecordKind.CONTEXT_SWITCH in kinds_of(cupti.version))
        if not self._read_clocks(tables):
            tables.forget_clocks()
        return tables

    def _read_clocks(self, tables: CollectorTables) -> bool:
        """Read the GPUs' clocks, each in the context that worked last, where that switches no context.

        A clock that cannot be read keeps its offset. Returns whether all were read.
        """
        read = True
        for clock in tables.clocks:
            offset = self._read_clock(self._contexts[clock.last_context])
            if offset is None:
                read = False
            else:
                clock.offset_ns = offset
            clock.confirmed_ns = self._board.now()
            clock.sampled = 0
        return read

    def _enable(self, cupti: Cupti, with_calls: bool, with_switches: bool) -> None:
        known = set(kinds_of(cupti.version))
        if not with_switches:
            known.discard(RecordKind.CONTEXT_SWITCH)
        for kind in REQUIRED:
            _check(cupti, f"cuptiActivityEnable of kind {int(kind)}", cupti.enable(kind))
            self._enabled.append(int(kind))
        for kind in OPTIONAL:
            if kind in known and cupti.enable(kind) == 0:
                self._enabled.append(int(kind))
        if with_calls and cupti.enable(RecordKind.DRIVER_CALL) == 0:
            self._enabled.append(int(RecordKind.DRIVER_CALL))
            # Choosing the calls without the kind returns 0, but CUPTI 13.1 then delivers no record.
            for number in set(range(1, _MOST_DRIVER_CALLS)) - set(SUBMITTING_CALLS):
                cupti.leave_out_driver_call(number)

    def _numbers(self, cupti: Cupti) -> dict[StreamUse, tuple[int, int]]:
        """The context's and the stream's numbers in records, of each use for which CUPTI knows them."""
        numbers = {}
        for use in self._uses:
            context = cupti.context_number(use.context)
            stream = None if context is None else cupti.stream_number(use.context, use.handle)
            if context is not None and stream is not None:
                numbers[use] = (context, stream)
        return numbers

    @staticmethod
    def _shared(numbers: Mapping[StreamUse, tuple[int, int]]) -> set[StreamUse]:
        """The uses of streams that several probes use."""
        count = Counter(numbers.values())
        return {use for use, key in numbers.items() if count[key] > 1}

    def _crossing(self, numbers: Mapping[StreamUse, tuple[int, int]]) -> set[StreamUse]:
        """The uses of probes with calls that use two GPUs.

        Their work may be on a stream of the driver's: a copy from the host to another GPU is on one of that GPU (H200).
        Without records of the calls CUPTI 13.5 moreover has no record of a peer copy, or one with the id of the
        thread's call before it.
        """
        names = {probe.name for probe in self._probes if crosses_gpus(probe.program)}
        return {use for use in numbers if use.probe in names}

    def _close(self) -> None:
        """Switch CUPTI's kinds off."""
        if self._cupti is None:
            return
        for kind in self._enabled:
            self._cupti.disable(kind)
        self._enabled = []

    def _give_up(self) -> None:
        """Leave CUPTI as it was before it was to be switched on."""
        self._close()
        with self._at_rest() as resting:
            if resting:
                self._detach()
            else:
                self._unsubscribe()

    @contextlib.contextmanager
    def _at_rest(self) -> Iterator[bool]:
        """Hold the probes while all their work has ended; False, and no hold, if a call or some work lasts.

        To detach CUPTI beside a launch of a graph loses the context to CUDA_ERROR_LAUNCH_FAILED (H200, CUPTI 13.5). At
        the end of the engine it is never at rest: detaching CUPTI would race with the driver's own end.
        """
        possible = self._subscriber != 0 and not self._ended and not self._hold.has_call_longer_than(_REST_S)
        if not possible or not self._hold.begin(_REST_S):
            yield False
            return
        try:
            idle = self._wait_idle(_REST_S)
            if not idle:
                self._hold.end()
            yield idle
        finally:
            self._hold.end()

    def _detach(self) -> None:
        """Detach CUPTI from the process, which must rest.

        Otherwise a launch takes some 0.5 us longer for the rest of the engine's life (H200, CUPTI 13.1 and 13.5).
        """
        cupti, detachment = self._cupti, core().detachment
        if cupti is None:
            return
        detachment.code = NOT_FINALIZED
        detachment.finalize = cupti.address("cuptiFinalize")
        code = cupti.detach(self._subscriber)
        detachment.finalize = 0
        if code == 0 and detachment.code == 0:
            # The buffers that CUPTI held, too.
            core().discard_buffers(1)
            self._subscriber = 0
        else:
            # This library cannot be detached: the subscription is all that can be ended.
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        if self._cupti is not None and self._subscriber:
            self._cupti.unsubscribe(self._subscriber)
        self._subscriber = 0


def _check(cupti: Cupti, function: str, code: int) -> None:
    if code:
        raise refusal(cupti, function, code)


def _note(cupti: Cupti, enabled: Sequence[int], clock: bool) -> str:
    if RecordKind.CONTEXT_SWITCH in enabled:
        return ""
    why, do = without_context_switches(cupti.version)
    if not why and not clock:
        return "no context switches: the GPU's clock could not be read"
    if not why:
        return "no context switches: CUPTI refuses to record them on this GPU or driver"
    return f"{why} ({do})" if do else why
