"""Trial of aggressors beside a watched program: they run in turns of whole steps of the program, one at a time.

A turn without an aggressor follows each turn with one. A turn begins once what was switched has taken effect, and ends
after whole steps. The program is only read: it is neither paused nor signalled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stallprobes.errors import BesideRefused, kind_and_text
from stallprobes.verdicts.experiment import round_order
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.beside.result import BesideResult, BesideUnit
from stallprobes.watch.beside.turn_statistics import Turn, row_of
from stallprobes.watch.beside_text import row_text
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.steps import Step
from stallprobes.watch.division.turns import CHANGING, NO_AGGRESSOR
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.reading.call_stack import StackFrame

_MS = 1_000_000
_S = 1_000 * _MS
# Number of turns of each aggressor after which a trial without a user is complete.
ENOUGH_TURNS = 6
# Shortest turn (ns), and its smallest number of whole steps.
_SHORTEST_NS, _LEAST_OF_TURN = 600 * _MS, 8
# Time (ns) of a turn from which _FEWEST_OF_TURN whole steps are enough: those of long steps.
_LONG_NS, _FEWEST_OF_TURN = 4 * _S, 3
# Length (ns) of a turn of a program without regular steps.
_TIMED_NS = _S
# Longest wait (ns) for the whole steps of a turn.
_LONGEST_NS = 60 * _S
# Longest wait (ns) until an aggressor that was switched on runs, and until one that was switched off has ended.
_SWITCHED_NS = 3 * _S
# Time (ns) between two readings after which a turn begins anew.
_PAUSE_NS = 8 * _S
# Time (ns) in the steady state after which a program without regular steps is timed by its waits.
_PATIENCE_NS = 10 * _S
# Smallest number of waits in a turn without an aggressor at which their rate says something.
_LEAST_WAITS = 20
# Time (ns) from the end of the last turn until its GPU work is recorded and divided.
_RECORDED_NS = 3 * _S
# Longest wait (s) at the end for aggressors that are being started.
_CLOSING_S = 2.0
# Number of turns without effect after which an aggressor is left out.
_MOST_VOID = 3
# Largest number of turns that are kept, the last ones.
_MOST_TURNS = 2_000


class AggressorProcess(Protocol):
    """Aggressors in a process of their own, one of which runs at a time. No method but ``start`` and ``stop`` blocks.

    ``ended``: why they ended by themselves, "" while they may run. ``refused``: reasons by aggressor.
    """

    names: tuple[str, ...]
    ended: str
    refused: dict[str, str]
    free_bytes: int | None
    least_free_bytes: int | None

    def start(self) -> None:
        """Start their process. Raises BesideRefused."""
        ...

    def run(self, name: str) -> None:
        """Let one aggressor run; "" for none."""
        ...

    def mark(self) -> None:
        """Remember what the running one has done until now."""
        ...

    @property
    def has_run(self) -> bool:
        """True if the running one has done something since the last mark."""
        ...

    @property
    def is_idle(self) -> bool:
        """True once nothing of them runs."""
        ...

    @property
    def sm_clock_mhz(self) -> float | None:
        """The SM clock of the GPU; None if not known."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes."""
        ...

    def stop(self) -> None:
        """End their process."""
        ...


# Makes the aggressors of a GPU (UUID without GPU- or MIG-) beside the processes of a program that may use so many CPUs
# (None: not known).
MakeAggressors = Callable[[str, Collection[int], int | None], AggressorProcess]


@dataclass(frozen=True)
class BesideTarget:
    """What is timed: a sequence of a process on a GPU. Without a ``step``, the calls of the process that wait."""

    process: tuple[int, int]
    name: str
    threads: tuple[int, ...]
    device: int
    gpu: str
    step: Step | None


@dataclass(frozen=True, eq=False)
class BesideMoment:
    """What a trial does now. ``waits_for`` is a clause, "" for nothing.

    ``begins`` are those of the last steps, or waits (ns); ``turns`` the last ones, as kind, begin and end (ns).
    """

    chosen: tuple[str, ...]
    running: str
    waits_for: str
    problem: str
    begins: Int64s
    turns: tuple[tuple[str, int, int], ...]


class BesideTrial:
    """A trial of aggressors beside the program that one thread reads and gives to ``look``.

    Any thread may choose aggressors. ``complete_after``: number of turns of each chosen one after which the trial is
    ``complete``; 0: never.
    """

    def __init__(self, make: MakeAggressors, chosen: Sequence[str] = (), complete_after: int = 0) -> None:
        self.target: BesideTarget | None = None
        self.problem = ""
        # The aggressor that runs, or NO_AGGRESSOR.
        self.running = NO_AGGRESSOR
        self._make, self._complete_after = make, complete_after
        self._chosen: tuple[str, ...] = tuple(chosen)
        # All that were chosen until now, the last one last.
        self._asked = self._chosen
        self._aggressors: AggressorProcess | None = None
        self._starting: threading.Thread | None = None
        self._pids: set[int] = set()
        self._closed = False
        self._turns: list[Turn] = []
        self._void: dict[str, int] = {}
        self._void_why: dict[str, str] = {}
        self._order: list[str] = []
        self._rounds = 0
        # When the present turn was switched, and when it began; None before.
        self._switched_ns: int | None = None
        self._begin_ns: int | None = None
        self._mhz: list[float] = []
        self._on_ns = 0
        self._steady_since_ns: int | None = None
        self._looked_ns = 0
        self._analysis: ProcessAnalysis | None = None

    @property
    def _divider(self) -> ProcessDivider | None:
        return None if self._analysis is None else self._analysis.divider

    # What is chosen.

    @property
    def chosen(self) -> tuple[str, ...]:
        """The aggressors that take part in turns, in the order in which they were chosen."""
        return self._chosen

    def choose(self, name: str, on: bool) -> None:
        """Let an aggressor take part in the turns that follow, or no longer. After a problem, all begins anew."""
        left = tuple(each for each in self._chosen if each != name)
        if on:
            self._void.pop(name, None)
            self._void_why.pop(name, None)
            if self.problem:
                self._aggressors = self._starting = self.target = self._switched_ns = None
                self.problem = ""
            self._asked = (*(each for each in self._asked if each != name), name)
        self._chosen = (*left, name) if on else left

    def choose_none(self) -> None:
        """Switch all aggressors off."""
        self._chosen = ()

    @property
    def complete(self) -> bool:
        """True once all turns have been, and the records of the last one are known; or if none can follow."""
        if self.problem or not self._complete_after:
            return bool(self.problem)
        if self._aggressors is None or self._able or self.running != NO_AGGRESSOR:
            return False
        last_ns = self._turns[-1].end_ns if self._turns else 0
        return time.monotonic_ns() - last_ns >= _RECORDED_NS

    @property
    def hurries(self) -> bool:
        """True while turns are made, which end only after a reading."""
        return bool(self._chosen) and not self._closed and not self.problem

    def present(self) -> BesideMoment:
        """What it does now, for a screen."""
        divider, target = self._divider, self.target
        turns = () if divider is None else divider.turns.last()
        begins = int64s([]) if divider is None or target is None else divider.step_begins(target.step)
        return BesideMoment(self._chosen, self.running, self.waits_for, self.problem, begins, turns)

    @property
    def waits_for(self) -> str:
        """What the trial waits for, as a clause; "" for nothing."""
        if not self._chosen or self.problem:
            return ""
        if self.target is None:
            return "its steady state, and regular steps"
        return "" if self._aggressors is not None else "the process of the aggressors"

    def close(self) -> None:
        """End the aggressors. Takes at most some seconds."""
        self._closed = True
        self._chosen = ()
        if self._starting is not None:
            # One that starts later, behind a driver that hangs, ends at once.
            self._starting.join(_CLOSING_S)
        if self._aggressors is not None:
            self._aggressors.stop()
        now_ns = time.monotonic_ns()
        self._count_time(now_ns)
        if self._divider is not None:
            self._divider.turns.end(now_ns)
        self.running = NO_AGGRESSOR

    # Readings.

    def look(self, findings: WatchFindings, analysis: Callable[[tuple[int, int]], ProcessAnalysis | None]) -> None:
        """Do what is due after a reading of the program: begin or end a turn. Never blocks."""
        now_ns, before_ns = time.monotonic_ns(), self._looked_ns
        self._looked_ns = now_ns
        if self._closed or self.problem:
            return
        if before_ns and now_ns - before_ns > _PAUSE_NS and self._begin_ns is not None:
            # A signal had stopped this process, and with it the aggressors.
            self._begin_ns, self._switched_ns = None, now_ns
            if self._aggressors is not None:
                self._aggressors.mark()
        if self._aggressors is not None and self._aggressors.ended:
            self._fail(f"The aggressors were ended: {self._aggressors.ended}")
            return
        if self.target is None:
            if not self._chosen:
                return
            self.target = self._found(findings, now_ns)
            if self.target is None:
                return
        self._analysis = analysis(self.target.process)
        process = next((each for each in findings.processes if (each.pid, each.image) == self.target.process), None)
        if process is not None and process.ended:
            self._end_with_program(now_ns)
            return
        if self._starting is None:
            if self._chosen:
                self._start(self.target, findings)
            return
        if self._aggressors is not None and self._divider is not None:
            self._turn(self._aggressors, self._divider, now_ns)

    def with_effects(self, findings: WatchFindings) -> WatchFindings:
        """Findings with the effects so far; aggressors are no processes that happen to share the GPU."""
        processes = tuple(
            process.changed(sharers=tuple(each for each in process.sharers if each.pid not in self._pids))
            for process in findings.processes
        )
        return findings.changed(processes=processes, beside=self.result())

    def result(self) -> BesideResult | None:
        """The effects so far; None if no aggressor was chosen until now."""
        target, aggressors = self.target, self._aggressors
        if not self._asked:
            return None
        # Without any turn, nothing is to be said of each of them.
        names = self._asked if self._turns or self._void else ()
        unit = BesideUnit.STEP if target is None or target.step is not None else BesideUnit.WAIT
        parts: Mapping[str, Int64s] = {}
        lines: Mapping[str, Mapping[StackFrame, Figure]] = {}
        if target is not None and self._analysis is not None and self._divider is not None:
            parts = self._divider.parts_in_turns(target.threads, target.device)
            lines = self._analysis.lines_in_turns(target.threads)
        rows = []
        for name in names:
            row = row_of(name, self._turns, unit, parts, lines)
            if row.reason:
                row = row.changed(reason=self._void_why.get(name) or self._refused.get(name) or row.reason)
            rows.append(row.changed(sentence=row_text(row, unit)))
        return BesideResult(
            pid=0 if target is None else target.process[0],
            gpu="" if target is None else target.gpu,
            unit=unit,
            rows=tuple(rows),
            on_ns=self._on_ns,
            free_bytes=None if aggressors is None else aggressors.free_bytes,
            least_free_bytes=None if aggressors is None else aggressors.least_free_bytes,
            problem=self.problem or self._not_begun,
        )

    @property
    def _not_begun(self) -> str:
        """Why nothing has run, if that is so, as a sentence."""
        if self._aggressors is not None:
            return ""
        if self.target is None:
            return "No aggressor has run so far: the program has no steady state with regular steps yet."
        return "No aggressor has run so far: their process is being started."

    @property
    def _refused(self) -> dict[str, str]:
        return {} if self._aggressors is None else self._aggressors.refused

    def _found(self, findings: WatchFindings, now_ns: int) -> BesideTarget | None:
        """The sequence that makes most calls of the process that makes most, once it has regular steps."""
        ranked = sorted(findings.processes, key=lambda process: (process.ended, -process.calls))
        process = next((each for each in ranked if _sequence_of(each) is not None and not each.ended), None)
        if process is None or process.division is None or not process.division.steady:
            return None
        sequence = _sequence_of(process)
        assert sequence is not None
        assert sequence.device is not None
        self._steady_since_ns = self._steady_since_ns or now_ns
        if sequence.step is None and now_ns - self._steady_since_ns < _PATIENCE_NS:
            return None
        if sequence.device >= len(process.gpus):
            self._fail("No aggressor has run: the UUID of the program's GPU is not known.")
            return None
        return BesideTarget(
            (process.pid, process.image),
            process.name,
            sequence.threads,
            sequence.device,
            process.gpus[sequence.device],
            sequence.step,
        )

    def _start(self, target: BesideTarget, findings: WatchFindings) -> None:
        """Start the process of the aggressors, in a thread."""
        pids = [process.pid for process in findings.processes]
        supplies = (each.cpus for each in findings.processes if (each.pid, each.image) == target.process)
        supply = next(supplies, None)
        cpus = None if supply is None else min(supply.allowed, math.ceil(supply.quota or supply.allowed))

        def start() -> None:
            try:
                aggressors = self._make(target.gpu, pids, cpus)
                aggressors.start()
            except BesideRefused as error:
                self._fail(f"No aggressor has run: {error}")
            except Exception as error:  # of any kind: the program is watched all the same
                self._fail(f"No aggressor has run ({kind_and_text(error)}); this is a defect of stallscope.")
            else:
                self._aggressors = aggressors
                self._pids |= set(aggressors.pids)
                if self._closed:
                    aggressors.stop()

        self._starting = threading.Thread(target=start, name="aggressors", daemon=True)
        self._starting.start()

    # Turns.

    def _turn(self, aggressors: AggressorProcess, divider: ProcessDivider, now_ns: int) -> None:
        """Begin the present turn once it has taken effect, or end it after whole steps."""
        if self._switched_ns is None:
            self._switch(aggressors, divider, now_ns)
            return
        assert self.target is not None
        name = self.running
        if name != NO_AGGRESSOR and name not in self._chosen:
            self._switch(aggressors, divider, now_ns)
            return
        if self._begin_ns is None:
            if name == NO_AGGRESSOR and not self._able:
                self._switched_ns = now_ns
                if aggressors.is_idle:
                    divider.turns.end(now_ns)
            elif aggressors.is_idle if name == NO_AGGRESSOR else aggressors.has_run:
                self._begin_ns = time.monotonic_ns()
                self._mhz = []
                aggressors.mark()
                divider.turns.begin(name, self._begin_ns)
            elif now_ns - self._switched_ns > _SWITCHED_NS:
                self._leave_out(name, "it did not run")
                self._switch(aggressors, divider, now_ns)
            return
        if (mhz := aggressors.sm_clock_mhz) is not None:
            self._mhz.append(mhz)
        if name == NO_AGGRESSOR and not self._able:
            # It begins once another turn can follow, with which it is compared.
            divider.turns.end(now_ns)
            self._begin_ns, self._switched_ns = None, now_ns
            return
        ended = self._ended_turn(divider.step_begins(self.target.step), now_ns)
        if ended is None:
            return
        if name != NO_AGGRESSOR and not aggressors.has_run:
            self._leave_out(name, "it did not run")
        elif not ended.counts:
            self._leave_out(name, "too few steps of the program ended in its turns")
        else:
            self._void.pop(name, None)
        self._turns = [*self._turns[1 - _MOST_TURNS :], ended]
        self._switch(aggressors, divider, now_ns)

    def _ended_turn(self, begins: Int64s, now_ns: int) -> Turn | None:
        """The present turn, if it has enough whole steps; None while it must last."""
        assert self._begin_ns is not None
        assert self.target is not None
        begins = begins[begins >= self._begin_ns]
        lasted_ns, mhz = now_ns - self._begin_ns, tuple(self._mhz)
        if self.target.step is None:
            if lasted_ns < _TIMED_NS:
                return None
            end_ns = self._begin_ns + _TIMED_NS
            waits = int(np.count_nonzero(begins < end_ns))
            counts = self.running != NO_AGGRESSOR or waits >= _LEAST_WAITS
            return Turn(self.running, self._begin_ns, end_ns, int64s([]), waits, mhz, counts)
        steps = int64s(np.diff(begins))
        least = _LEAST_OF_TURN if lasted_ns < _LONG_NS else _FEWEST_OF_TURN
        if len(steps) >= least and int(begins[-1] - begins[0]) >= _SHORTEST_NS:
            return Turn(self.running, self._begin_ns, int(begins[-1]), steps, 0, mhz)
        if lasted_ns > _LONGEST_NS:
            return Turn(self.running, self._begin_ns, now_ns, steps, 0, mhz, counts=False)
        return None

    def _switch(self, aggressors: AggressorProcess, divider: ProcessDivider, now_ns: int) -> None:
        """Switch to the next turn: without an aggressor after one with one, else to the next aggressor."""
        before = self.running
        divider.turns.begin(CHANGING, now_ns)
        self._count_time(now_ns)
        first = self._switched_ns is None
        self.running = NO_AGGRESSOR if first or before != NO_AGGRESSOR else self._next()
        self._begin_ns, self._switched_ns = None, now_ns
        aggressors.run(self.running)

    def _next(self) -> str:
        """The aggressor of the next turn; rounds have them in orders in which each follows each other one."""
        able = self._able
        self._order = [name for name in self._order if name in able]
        if not self._order and able:
            self._order = list(round_order(sorted(able), self._rounds))
            self._rounds += 1
        return self._order.pop(0) if self._order else NO_AGGRESSOR

    @property
    def _able(self) -> list[str]:
        """The chosen aggressors of which a turn may follow."""
        return [name for name in self._chosen if not self._done(name)]

    def _done(self, name: str) -> bool:
        """True if no turn of an aggressor follows."""
        if name in self._refused or self._void.get(name, 0) >= _MOST_VOID:
            return True
        turns = sum(turn.aggressor == name and turn.counts for turn in self._turns)
        return bool(self._complete_after) and turns >= self._complete_after

    def _leave_out(self, name: str, why: str) -> None:
        if name != NO_AGGRESSOR:
            self._void[name] = self._void.get(name, 0) + 1
            self._void_why[name] = why

    def _end_with_program(self, now_ns: int) -> None:
        """Switch everything off once the process has ended."""
        if self.running != NO_AGGRESSOR and self._aggressors is not None and self._divider is not None:
            self._switch(self._aggressors, self._divider, now_ns)

    def _fail(self, problem: str) -> None:
        """Note why no aggressor runs any more. A user may choose one again."""
        now_ns = time.monotonic_ns()
        self._count_time(now_ns)
        self.problem, self.running, self._chosen = problem, NO_AGGRESSOR, ()
        if self._divider is not None:
            self._divider.turns.end(now_ns)

    def _count_time(self, now_ns: int) -> None:
        """Count the time of the aggressor that runs until now, also one whose turn has not ended."""
        if self.running != NO_AGGRESSOR and self._switched_ns is not None:
            self._on_ns += now_ns - self._switched_ns


def _sequence_of(process: ProcessFindings) -> ProgramSequence | None:
    """The first sequence of a process that has work on a GPU."""
    return next((each for each in process.sequences if each.device is not None), None)
