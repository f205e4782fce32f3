"""Thread of a probe in virtual time: setup, iterations at the probe's period, teardown, as in the compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, pointer
from typing import Any

from stallprobes.engine.board import ProbeSection
from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import HostWord
from stallprobes.engine.sim.histogram_writer import HistogramWriter
from stallprobes.engine.sim.host_thread import BoundOp, HostThread
from stallprobes.engine.sim.sampling import QUANTILES
from stallprobes.engine.sim.timeline import SimTimeline, TracedThread
from stallprobes.model import Channel, Op, Probe
from stallprobes.native.layouts.board import ProbeState
from stallprobes.native.layouts.schedule import GUARD_STEP_NS, PARKED_STEP_NS, SLOT_STEP_NS, NextStep, Schedule
from stallprobes.native.library import core

# Members of ProbeState as plain integers. Reason: a conversion of the enum's members in every step takes time.
_PARKED = int(ProbeState.PARKED)
_ENDED = int(ProbeState.ENDED)
_ERROR = int(ProbeState.ERROR)
# Number of the first operation of an iteration, as in ``error_op`` (number of the failed operation). After a failure of
# the first operation, there is nothing to undo. After a failure of a later operation, the thread runs the program's
# ``undo`` operations.
_FIRST_OP = 1
# Members of NextStep as plain integers. Reason: a conversion of the enum's members in every step takes time.
_TO_PARK, _SLOT_CLOSED, _GUARDED, _SLEEP, _POLL, _ITERATE = map(int, NextStep)


class SimProbeThread:
    """One probe's thread and its section of the board."""

    def __init__(
        self,
        probe: Probe,
        host: HostThread,
        part: ProbeSection,
        steps: Callable[[Sequence[Op], Sequence[Channel]], Sequence[BoundOp]],
        guard: tuple[HostWord, int] | None,
        proof: HostWord | None,
    ) -> None:
        """``steps`` binds ops to the thread; with channels they are measured."""
        program = probe.program
        self.probe = probe
        self.host = host
        self._recorder = HistogramWriter(part)
        self.words = self._recorder.words
        self.words.aligned = program.aligned
        self._ops = steps(program.ops, program.channels)
        self._setup, self._teardown, self._undo = (
            steps(ops, ()) for ops in (program.setup, program.teardown, program.undo)
        )
        self._guard = guard
        self._proof = proof
        # The values that are not on the board yet, with the rows of their histograms: of each op, and of the due time.
        pending: list[list[int]] = [[] for _ in self._ops]
        self._pending_due: list[int] = []
        self._pending = [(each.rows, values) for each, values in zip(self._ops, pending, strict=True)]
        self._pending.append(((self.words.due_channel,), self._pending_due))
        # Every call of an iteration with the number of its op.
        self._calls = [
            (number, each, each.call, pending[number - 1].append)
            for number, each in enumerate(self._ops, 1)
            for _ in range(each.repeat)
        ]
        self._wakeup: Any = None
        # Whether it was on at the last ``notify_switch``.
        self.was_on = False
        # Whether all samples are on the board, and the thread waits to be woken up.
        self._published = False
        self._traced: TracedThread | None = None
        self.settled: Any = host.clock.event()
        # Parked threads poll their RUN words with different phases.
        self._park_phase_ns = host.random.next_number() * PARKED_STEP_NS // QUANTILES
        self._switch_delay_ns = 0
        self._waits_for_slot = False

    def trace(self, timeline: SimTimeline, process: Any, number: int) -> None:
        """Record this thread's calls while ``timeline`` is on; ``process`` of the clock runs it."""
        self._traced = timeline.add(process, number, self.probe, self._recorder)

    def notify_switch(self, drift_ns: int) -> None:
        """Wake a waiting thread, at least ``drift_ns`` later, to read its words, which have changed."""
        self.was_on = self.words.run != 0
        self._switch_delay_ns = drift_ns
        self._wake()

    def notify_slot(self) -> None:
        """Wake the thread if it waits for its slot and the slot has opened."""
        if self._waits_for_slot and self.words.slot.changes & 1:
            self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None:
            wakeup, self._wakeup = self._wakeup, None
            self._published = False
            wakeup.succeed()

    def publish(self) -> None:
        """Copy pending samples and the proof word to the board, and update the heartbeat of a waiting thread."""
        if not self._published:
            self._publish_samples()
            self._published = self._wakeup is not None
        if self._proof is not None:
            self.words.proof = self._proof.value
        if self._wakeup is not None:
            self.words.heartbeat_ns = self.host.clock.now

    def _publish_samples(self) -> None:
        # Together, because each count costs less then.
        for rows, values in self._pending:
            if values:
                self._recorder.count_list(rows, values)
                values.clear()

    def run(self) -> Wait:
        """The thread from its setup to its end."""
        done = yield from self._run_once(self._setup)
        if done:
            self.words.state = _PARKED
            self.settled.succeed()
            ended = yield from self._iterate()
            if ended:
                self.words.state = _ENDED
                yield from self._run_once(self._teardown)
            elif self.words.error_op > _FIRST_OP:
                for each in self._undo:
                    yield from each.call()
        else:
            self.settled.succeed()

    def _run_once(self, steps: Sequence[BoundOp]) -> Call:
        """Run setup or teardown ops, unmeasured. 0 if one returned an unexpected code, else 1."""
        for number, each in enumerate(steps, 1):
            for _ in range(each.repeat):
                result = yield from each.call()
                if self._is_wrong(each, result):
                    self._fail(result, -number)
                    return 0
        return 1

    def _is_wrong(self, each: BoundOp, result: Any) -> bool:
        if each.into is not None:
            each.into.put(result)
            return False
        return result not in each.ok

    def _fail(self, code: int, op: int) -> None:
        words = self.words
        words.error_code = code
        words.error_ns = self.host.clock.now
        words.error_op = op
        words.state = _ERROR

    def _wait_for_wakeup(self) -> Wait:
        self._wakeup = self.host.clock.event()
        yield self._wakeup

    def _wait_while_parked(self) -> Wait:
        """Wait until RUN is 1, which the thread notices a little later."""
        while self.words.run == 0 and not self.host.simulation.quit:
            yield from self._wait_for_wakeup()
            yield from self.host.clock.wait(self._switch_delay_ns + self._park_phase_ns)

    def _wait_for_slot(self) -> Wait:
        """Wait until the slot opens, which the thread notices a little later, or until it is switched off."""
        self._waits_for_slot = True
        yield from self._wait_for_wakeup()
        self._waits_for_slot = False
        yield from self.host.clock.wait(self._park_phase_ns * SLOT_STEP_NS // PARKED_STEP_NS)

    def _wait_for_guard(self, guard: HostWord, schedule: Schedule) -> Wait:
        """Wait until the guard's word changes, which the thread polls; the schedule is shifted at each look."""
        clock, began = self.host.clock, self.host.clock.now
        guard.watch(self._wake)
        yield from self._wait_for_wakeup()
        guard.unwatch(self._wake)
        yield from clock.wait(-(clock.now - began) % GUARD_STEP_NS or GUARD_STEP_NS)
        schedule.due_ns = max(schedule.due_ns, clock.now - GUARD_STEP_NS)

    def _iterate(self) -> Call:
        """Iterate until ``quit``; 0 if a call returned an unexpected code, else 1."""
        host, words, recorder, own_slot = self.host, self.words, self._recorder, self.words.slot
        clock, simulation, random = host.clock, host.simulation, host.random
        calls, guard = self._calls, self._guard
        push, count_due, queue = recorder.push, self._pending_due.append, clock.queue
        due_channel, lead = words.due_channel, words.lead_ns
        gap = round(simulation.profile.locks.loop_ns)
        timer, traced = simulation.timer, self._traced
        schedule = Schedule(addressof(words), slot=1)
        at, schedule_next, schedule_end = pointer(schedule), core().schedule_next, core().schedule_end
        while not simulation.quit:
            schedule.now_ns = words.heartbeat_ns = now = clock.now
            if guard is not None:
                schedule.guarded = words.iterations - guard[0].value >= guard[1]
            next_step = schedule_next(at)
            if next_step <= _GUARDED:
                if next_step == _TO_PARK:
                    yield from self._wait_while_parked()
                elif next_step == _SLOT_CLOSED:
                    yield from self._wait_for_slot()
                elif guard is not None:
                    yield from self._wait_for_guard(guard[0], schedule)
                continue
            if next_step != _ITERATE:
                until = due = schedule.due_ns
                if next_step == _SLEEP:
                    awake = schedule.awake_ns + timer.draw(random)
                    # Once awake it polls the clock until the due time.
                    until = max(due, awake) if schedule.awake_ns == due - lead else awake
                    host.record_sleep(awake - now)
                if queue and queue[0][0] <= until:
                    yield until - now
                else:
                    clock.now = until
                continue
            slot, fresh = schedule.slot, schedule.fresh
            first = words.iterations == 0
            measured = False
            measured_end = end = now
            for number, each, call, count in calls:
                yield from clock.wait(gap)
                began = clock.now
                closed = own_slot.changes != slot
                words.inflight_since_ns = began
                words.inflight_op = number
                if traced is not None and traced.on:
                    traced.begin(number - 1, began)
                result = yield from call()
                end = clock.now
                words.inflight_op = 0
                if result != 0 and self._is_wrong(each, result):
                    self._fail(result, number)
                    return 0
                channel = each.channel
                counts = channel >= 0 and (first or not (closed or (fresh and own_slot.changes == slot)))
                if traced is not None and traced.on:
                    traced.end(end, counts, first)
                if not counts:
                    continue
                measured = True
                measured_end = end
                value = end - began
                if each.value is not None:
                    if result != 0:
                        continue
                    value = round(each.value.value * 1e6)
                if first:
                    recorder.first(channel, value)
                    if each.label >= 0:
                        recorder.first(each.label, value)
                else:
                    count(value)
                push(end, channel, value)
            schedule.end_ns, schedule.measured_end_ns = end, measured_end
            schedule_end(at)
            if measured and first:
                recorder.first(due_channel, schedule.late_ns)
            elif measured:
                count_due(schedule.late_ns)
                passed, period = min(schedule.late_ns, schedule.allowed_ns), schedule.period_ns
                if passed > period > 0:
                    recorder.passed(due_channel, passed, period)
            words.iterations += 1
        return 1
