"""Collector: switches CUPTI on and off while the engine runs, and moves its records to the board.

A thread of its own makes all calls of CUPTI, because each of them may wait behind a driver lock that a hung call holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import Board
from stallprobes.engine.hold import ProbeHold
from stallprobes.engine.layout import TRACE_HEAD
from stallprobes.engine.timeline import gpu_clock, tables
from stallprobes.engine.timeline.interfaces import CuptiCalls, GpuClockReader, IdleWaiter, Loader, StreamUse
from stallprobes.engine.timeline.library import FLUSH_FORCED, refusal, without_context_switches
from stallprobes.engine.timeline.records import RecordKind, kinds_of, offset_table
from stallprobes.engine.timeline.ring import CALL_WORDS, EXHAUSTED, ON, RECORD_WORDS, STARTED_NS, STOPPED_NS
from stallprobes.engine.timeline.status import OFF, TimelineProblem, TimelineStatus, TimelineUnavailable
from stallprobes.engine.timeline.work import crosses_gpus, depth, submissions
from stallprobes.model import Channel, Context, Phase, Probe

# The kinds in the order in which they are switched on. Without the first ones there is no timeline.
REQUIRED = (RecordKind.KERNEL, RecordKind.COPY)
OPTIONAL = (RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.OVERHEAD, RecordKind.CONTEXT_SWITCH)

# A call or work that lasts longer than this keeps CUPTI attached. It is detached later: each try can hold the probes
# for as long, so the time between two doubles.
_REST_S = 0.25
_DETACH_AGAIN_S, _DETACH_AGAIN_MOST_S = 1.0, 60.0
_LONGEST_HOLD_S = 5.0
_NOT_CALLED = -1

# More than any driver numbers its functions: CUDA 13.0 has 845.
_MOST_DRIVER_CALLS = 2_000

# CUpti_driver_api_trace_cbid of the calls that submit work: launches, copies, graphs, batches of copies, memsets, and
# the copies and memsets without a stream.
SUBMITTING_CALLS = (
    307, 442, 277, 279, 281, 421, 422, 423, 319, 426, 514, 515, 776, 777, 796, 797, 216, 220, 428, 430,
    276, 278, 280, 318, 249, 251,
)  # fmt: skip


class Collector:
    """The timeline of an engine. ``switch`` returns at once; ``status`` says what has become of it."""

    def __init__(
        self,
        load: Loader,
        board: Board,
        probes: Sequence[Probe],
        uses: Sequence[StreamUse],
        threads: Callable[[], Mapping[str, int]],
        read_clock: GpuClockReader,
        wait_idle: IdleWaiter,
    ) -> None:
        """``uses`` are the streams of all probes, ``threads`` gives the kernel's number of each probe's thread.

        ``read_clock`` and ``wait_idle`` are called in the collector's thread.

        Nothing is loaded before the timeline is switched on.
        """
        self._load = load
        self._board = board
        self._probes = tuple(probes)
        self._uses = tuple(uses)
        self._threads = threads
        self._read_clock = read_clock
        self._wait_idle = wait_idle
        self._hold = ProbeHold(board, [probe.name for probe in probes])
        self._clocks = np.zeros((0, gpu_clock.CLOCK_WORDS), dtype=np.int64)
        self._contexts: dict[int, Context] = {}
        self._wanted = False
        self._ended = False
        self._changed = threading.Event()
        self._settled = threading.Event()
        self._status = OFF
        self._thread: threading.Thread | None = None
        self._control = np.zeros(tables.CONTROL_WORDS, dtype=np.int64)
        self._cupti: CuptiCalls | None = None
        # The subscription; 0 once CUPTI is detached from the process.
        self._subscriber = 0
        self._again_s = _DETACH_AGAIN_S
        self._enabled: list[int] = []

    @staticmethod
    def compile() -> None:
        """Load the compiled code; the first time on a machine compiles it, up to 20 s on the server of an H200."""
        from stallprobes.engine.timeline import collecting  # noqa: F401
        from stallprobes.engine.timeline.buffers import callbacks

        callbacks()

    @property
    def status(self) -> TimelineStatus:
        """The present state."""
        return self._status

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
            self._control[tables.STOP] = 1
        self._changed.set()

    @property
    def settled(self) -> bool:
        """Whether the last switch has taken effect or failed."""
        return self._thread is None or self._settled.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the last switch has taken effect or failed; False after ``seconds``."""
        return self._thread is None or self._settled.wait(seconds)

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
                self._again_s = min(2 * self._again_s, _DETACH_AGAIN_MOST_S)
                with self._at_rest() as resting:
                    if resting:
                        self._detach()
                continue
            self._changed.clear()
            self._control[tables.STOP] = 0
            # Whoever switches it off clears the wish before setting STOP.
            if self._wanted:
                self._again_s = _DETACH_AGAIN_S
                self._run()
            if not self._wanted:
                self._settled.set()

    def _run(self) -> None:
        # Compiled code is loaded when it is needed first: it would make every start of an engine longer.
        from stallprobes.engine.timeline import collecting

        try:
            arguments = self._open()
        except TimelineUnavailable as error:
            self._give_up()
            self._wanted = False
            self._status = error.status
            return
        except Exception as error:
            self._give_up()
            self._wanted = False
            found = f"switching it on failed ({type(error).__name__}: {error})"
            self._status = TimelineStatus(False, TimelineProblem.FAILED, found, "please report this")
            return
        words = self._board.timeline.words
        words[STARTED_NS] = words[STARTED_NS] or self._board.now()
        words[ON] = 1
        if self._wanted:
            self._settled.set()
        collecting.collect(*arguments)
        while not self._control[tables.STOP]:
            self._read_clocks()
            collecting.collect(*arguments)
        with self._at_rest() as resting:
            # Calls are recorded until the probes rest, as their work is: the last round has both.
            words[ON] = 0
            words[STOPPED_NS] = self._board.now()
            self._close()
            self._control[tables.PATIENCE] = 0
            last: list[Any] = [*arguments, FLUSH_FORCED]
            collecting.collect_once(*last)
            if resting:
                self._detach()
            elif self._ended:
                self._unsubscribe()
        self._status = replace(self._status, on=False)

    def _open(self) -> tuple[Any, ...]:
        """Switch CUPTI on; returns the arguments of the compiled loop. Raises TimelineUnavailable."""
        from stallprobes.engine.timeline.buffers import POOL_EXHAUSTED, callbacks, process_pool

        cupti = self._cupti = self._cupti or self._load()
        native = callbacks()
        with self._held():
            self._attach(cupti, native)
        numbers = self._numbers(cupti)
        contexts = self._with_clocks(cupti, numbers)
        shared, crossing = self._shared(numbers), self._crossing(numbers)
        with self._held():
            self._enable(cupti, bool(shared or crossing), with_switches=len(self._clocks) > 0)
        # Without records of calls, work on a stream of several probes is nobody's, that of one probe in order.
        found_by_id = shared | crossing if RecordKind.DRIVER_CALL in self._enabled else shared
        tracks, ops = self._tracks(numbers, found_by_id)
        pool = process_pool()
        control = self._control
        control[tables.FLUSH] = cupti.address("cuptiActivityFlushAll")
        control[tables.NEXT_RECORD] = cupti.address("cuptiActivityGetNextRecord")
        control[tables.COUNT_DROPPED] = cupti.address("cuptiActivityGetNumDroppedRecords")
        control[[tables.PERIOD, tables.PATIENCE]] = tables.PERIOD_NS, tables.USUAL_PATIENCE
        control[[tables.TRACKS, tables.KEPT]] = len(tracks), 0
        control[tables.EXHAUSTED_SEEN] = pool.words[POOL_EXHAUSTED] - self._board.timeline.words[EXHAUSTED]
        self._status = TimelineStatus(
            on=True,
            note=_note(cupti, self._enabled, clock=len(self._clocks) > 0),
            library=cupti.path,
            version=cupti.version,
            kinds=tuple(self._enabled),
            contexts={context: use.stream.context.name for use, (context, _) in numbers.items()},
            streams={key: use.stream.name for use, key in numbers.items()},
        )
        return (
            control,
            pool.words,
            offset_table(),
            contexts,
            self._clocks,
            tracks,
            ops,
            tables.zeros(max(len(tracks), 1), tables.QUEUE, CALL_WORDS),
            tables.zeros(tables.BATCH, RECORD_WORDS),
            tables.zeros(tables.MOST_KEPT, RECORD_WORDS),
            tables.zeros(tables.IDS, tables.ID_WORDS),
            self._board.timeline.words,
            self._board.timeline.records,
        )

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

    def _attach(self, cupti: CuptiCalls, native: Mapping[str, int]) -> None:
        """Become the subscriber, and register clock and buffers. Raises TimelineUnavailable."""
        self._unsubscribe()
        code, self._subscriber = cupti.subscribe(native["detach"])
        _check(cupti, "cuptiSubscribe", code)
        _check(cupti, "cuptiActivityRegisterTimestampCallback", cupti.set_timestamps(native["timestamp"]))
        cupti.set_system_thread_ids()
        _check(cupti, "cuptiActivityRegisterCallbacks", cupti.set_buffers(native["requested"], native["completed"]))

    def _with_clocks(self, cupti: CuptiCalls, numbers: Mapping[StreamUse, tuple[int, int]]) -> NDArray[np.int64]:
        """Read the clock of each GPU; returns the table of contexts. Without a clock there are no switches."""
        self._contexts = {number: use.stream.context for use, (number, _) in numbers.items()}
        devices = sorted({context.device for context in self._contexts.values()})
        table = np.zeros((len(self._contexts), gpu_clock.CONTEXT_WORDS), dtype=np.int64)
        for row, (number, context) in zip(table, self._contexts.items(), strict=True):
            row[[gpu_clock.NUMBER, gpu_clock.CLOCK]] = number, devices.index(context.device)
        known = RecordKind.CONTEXT_SWITCH in kinds_of(cupti.version)
        self._clocks = np.zeros((len(devices) if known else 0, gpu_clock.CLOCK_WORDS), dtype=np.int64)
        for clock, device in zip(self._clocks, devices, strict=False):
            clock[gpu_clock.LAST_CONTEXT] = next(
                number for number, context in self._contexts.items() if context.device == device
            )
        if not self._read_clocks():
            self._clocks = self._clocks[:0]
        return table

    def _read_clocks(self) -> bool:
        """Read the GPUs' clocks, each in the context that worked last, where that switches no context.

        A clock that cannot be read keeps its offset. Returns whether all were read.
        """
        read = True
        for clock in self._clocks:
            offset = self._read_clock(self._contexts[int(clock[gpu_clock.LAST_CONTEXT])])
            if offset is None:
                read = False
            else:
                clock[gpu_clock.OFFSET_NS] = offset
            clock[gpu_clock.CONFIRMED_NS] = self._board.now()
            clock[gpu_clock.SAMPLED] = 0
        return read

    def _enable(self, cupti: CuptiCalls, with_calls: bool, with_switches: bool) -> None:
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

    def _numbers(self, cupti: CuptiCalls) -> dict[StreamUse, tuple[int, int]]:
        """The context's and the stream's numbers in records, of each use for which CUPTI knows them."""
        found = {}
        for use in self._uses:
            context = cupti.context_number(use.context)
            stream = None if context is None else cupti.stream_number(use.context, use.handle)
            if context is not None and stream is not None:
                found[use] = (context, stream)
        return found

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

    def _tracks(
        self, numbers: Mapping[StreamUse, tuple[int, int]], found_by_id: set[StreamUse]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tracks and their ops, for the compiled loop. Those of ``found_by_id`` have their thread's number."""
        threads = self._threads()
        own = {probe.name: probe for probe in self._probes}
        most = max((len(probe.program.ops) for probe in self._probes), default=1)
        tracks = np.zeros((max(len(numbers), 1), tables.TRACK_WORDS), dtype=np.int64)
        ops = np.zeros((max(len(numbers), 1), most, tables.OP_WORDS), dtype=np.int64)
        ops[:, :, tables.ROW_START :] = -1
        for row, table, (use, (context, stream)) in zip(tracks, ops, numbers.items(), strict=False):
            probe, part = own[use.probe], self._board[use.probe]
            row[tables.TRACK_PROBE] = self._board.layout.names.index(use.probe)
            row[[tables.TRACK_CONTEXT, tables.TRACK_STREAM]] = context, stream
            row[tables.TRACK_DEPTH] = depth(probe.program, use.stream)
            row[tables.TRACK_THREAD] = threads.get(use.probe, -1) if use in found_by_id else 0
            row[tables.LOADED] = part.words[TRACE_HEAD]
            row[tables.AT_WORDS] = part.words.ctypes.data
            row[tables.AT_TRACE] = part.trace.ctypes.data
            row[tables.AT_HIST] = part.hist.ctypes.data
            row[tables.AT_STATS] = part.stats.ctypes.data
            rows = {channel: place + len(part.channels) for place, channel in enumerate(part.timeline_channels)}
            for work in submissions(probe.program):
                if work.stream != use.stream:
                    continue
                table[work.op, [tables.OP_RECORDS, tables.OP_AWAITED]] = work.records, work.awaited
                for place, phase in enumerate((Phase.START, Phase.EARLY, Phase.GPU)):
                    table[work.op, tables.ROW_START + place] = rows.get(Channel(phase), -1)
                    if work.label:
                        table[work.op, tables.LABEL_START + place] = rows.get(Channel(phase, work.label), -1)
        return tracks[: len(numbers)] if numbers else tracks, ops

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
        from stallprobes.engine.timeline.buffers import POOL_FINALIZE, POOL_FINALIZED, process_pool

        cupti, pool = self._cupti, process_pool()
        if cupti is None:
            return
        pool.words[POOL_FINALIZED] = _NOT_CALLED
        pool.words[POOL_FINALIZE] = cupti.address("cuptiFinalize")
        code = cupti.detach(self._subscriber)
        pool.words[POOL_FINALIZE] = 0
        if code == 0 and pool.words[POOL_FINALIZED] == 0:
            pool.take_back()
            self._subscriber = 0
        else:
            # This library cannot be detached: the subscription is all that can be ended.
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        if self._cupti is not None and self._subscriber:
            self._cupti.unsubscribe(self._subscriber)
        self._subscriber = 0


def _check(cupti: CuptiCalls, function: str, code: int) -> None:
    if code:
        raise refusal(cupti, function, code)  # type: ignore[arg-type]


def _note(cupti: CuptiCalls, enabled: Sequence[int], clock: bool) -> str:
    if RecordKind.CONTEXT_SWITCH in enabled:
        return ""
    why, do = without_context_switches(cupti.version)
    if not why and not clock:
        return "no context switches: the GPU's clock could not be read"
    if not why:
        return "no context switches: CUPTI refuses to record them on this GPU or driver"
    return f"{why} ({do})" if do else why
