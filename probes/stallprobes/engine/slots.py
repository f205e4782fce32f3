"""Slots: times in which only the victims of one group run, and the other groups of the GPU wait.

Two contexts that both use the graphics engine wait for each other's change-over, although the GPU is idle. Therefore
the groups of one GPU have slots one after the other; GPUs are independent of each other. A slot never waits for a call
in flight: the victims of the next group run beside it, and this time counts as not alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stallprobes.engine.board import Board, counter_ns
from stallprobes.model import MS, SLOT_NS, Probe, SlotGroup
from stallprobes.native.layouts.board import TimeCounter

# Longest pause (ns) between two updates of the slots (times in which one group of victims runs). An update checks
# whether a probe was switched on or off, and whether a call that lasts beyond its slot has ended.
STEP_NS = 2 * MS


@dataclass(frozen=True)
class SlotState:
    """State of a victim's slot: whether it is open, and whether a call of another group is in flight meanwhile.

    ``opens_ns`` is the time at which the slot opens if no probe is switched; of an open slot, when it opened.
    """

    is_open: bool
    not_alone: bool
    opens_ns: int


# State of a switched-off victim's time slot: closed, without a time at which the slot opens.
CLOSED = SlotState(is_open=False, not_alone=False, opens_ns=0)


class _GpuSlots:
    """The slots of one GPU. ``current`` is the group that has the slot, None if no victim is on."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups
        self.current: str | None = None
        self._since_ns = 0
        self._order: list[str] = []

    def update(self, now_ns: int, wanted: set[str]) -> None:
        """Give the slot to the next of the ``wanted`` groups if it is due."""
        if self.current not in wanted or (len(wanted) > 1 and now_ns >= self._since_ns + SLOT_NS):
            place = 0 if self.current is None else self._groups.index(self.current) + 1
            order = [*self._groups[place:], *self._groups[:place]]
            self.current = next((group for group in order if group in wanted), None)
            self._since_ns = now_ns
        start = 0 if self.current is None else self._groups.index(self.current)
        self._order = [group for group in (*self._groups[start:], *self._groups[:start]) if group in wanted]

    def opens_ns(self, group: str) -> int:
        """When the slot of ``group``, which is wanted, opens or opened."""
        return self._since_ns + self._order.index(group) * SLOT_NS

    @property
    def due_ns(self) -> int | None:
        """When the slot passes to the next group; None while only one is wanted."""
        return self._since_ns + SLOT_NS if len(self._order) > 1 else None


class SlotSchedule:
    """The slots of all GPUs, without clock and board: ``update`` says what each victim may do at a time.

    A group has SLOT_NS at a time, in the order of the groups' first victims. Only groups with a victim that is switched
    on take part; a group that is alone keeps the slot.
    """

    def __init__(self, groups: Mapping[str, SlotGroup]) -> None:
        """``groups`` are the victims' names with their groups."""
        self._groups = dict(groups)
        names: dict[int, list[str]] = {}
        for gpu, group in dict.fromkeys(self._groups.values()):
            names.setdefault(gpu, []).append(group)
        self._gpus = {gpu: _GpuSlots(each) for gpu, each in names.items()}

    def update(self, now_ns: int, on: set[str], in_flight: set[str]) -> dict[str, SlotState]:
        """The state of each victim at ``now_ns``, which never decreases.

        ``on`` are the switched-on victims, ``in_flight`` the victims with a call in flight.
        """
        for gpu, slots in self._gpus.items():
            slots.update(now_ns, {self._groups[name][1] for name in on if self._groups[name][0] == gpu})
        occupied = {self._groups[name] for name in in_flight}
        return {name: self._state(group, name in on, occupied) for name, group in self._groups.items()}

    def _state(self, group: SlotGroup, on: bool, occupied: set[SlotGroup]) -> SlotState:
        gpu, name = group
        slots = self._gpus[gpu]
        if not on:
            return CLOSED
        opens_ns = slots.opens_ns(name)
        if slots.current != name:
            return SlotState(is_open=False, not_alone=False, opens_ns=opens_ns)
        return SlotState(True, any(other[0] == gpu and other[1] != name for other in occupied), opens_ns)

    @property
    def due_ns(self) -> int | None:
        """When the next slot of any GPU opens if no probe is switched; None for never."""
        return min((slots.due_ns for slots in self._gpus.values() if slots.due_ns is not None), default=None)


def grouped(probes: Sequence[Probe]) -> dict[str, SlotGroup]:
    """The probes that need slots, with their groups: the victims of GPUs with two groups or more."""
    groups = {probe.name: probe.slot_group for probe in probes if probe.slot_group is not None}
    crowded = {gpu for gpu, _ in groups.values() if len({g for g in groups.values() if g[0] == gpu}) > 1}
    return {name: group for name, group in groups.items() if group[0] in crowded}


def longest_cycle(probes: Sequence[Probe], together: bool) -> int:
    """The number of slots until the first group has its next one; 1 without slots."""
    groups = {} if together else grouped(probes)
    return max((len({g for g in groups.values() if g[0] == gpu}) for gpu, _ in groups.values()), default=1)


class SlotWriter:
    """Writes the slots of a session to its board. ``not_alone``: a victim runs beside a call of another group."""

    def __init__(self, probes: Sequence[Probe], board: Board, together: bool) -> None:
        """With ``together`` there are no slots: every victim may always run."""
        groups = {} if together else grouped(probes)
        self._words = {name: board[name].words for name in groups}
        self._schedule = SlotSchedule(groups)
        self._on: set[str] = set()
        self.not_alone = False
        for words in self._words.values():
            words.slot.changes = 2

    @property
    def needed(self) -> bool:
        """True if there is anything to write."""
        return bool(self._words)

    def update(self, now_ns: int) -> bool:
        """Open and close slots at ``now_ns``; True if a slot has opened or closed."""
        on = {name for name, words in self._words.items() if words.run}
        if on == self._on and not self.not_alone and now_ns < (self.due_ns or now_ns + 1):
            # A call in flight beyond its slot began before the slot of the next group opened.
            return False
        self._on = on
        in_flight = {name for name, words in self._words.items() if words.inflight_op}
        states = self._schedule.update(now_ns, on, in_flight)
        changed = False
        # Slots that close come first, so that two groups never have an open slot at once.
        for name, state in sorted(states.items(), key=lambda item: item[1].is_open):
            words = self._words[name]
            _count(words.not_alone, state.not_alone, now_ns)
            words.opens_ns = state.opens_ns
            changed |= _count(words.slot, state.is_open, now_ns)
        self.not_alone = any(state.not_alone for state in states.values())
        return changed

    @property
    def due_ns(self) -> int | None:
        """When the next slot opens if no probe is switched; None for never."""
        return self._schedule.due_ns


def _count(counter: TimeCounter, counting: bool, now_ns: int) -> bool:
    """Start or stop a time counter; True if that changed it."""
    if counting == bool(counter.changes & 1):
        return False
    total_ns = counter_ns(counter, now_ns)
    if counting:
        counter.offset_ns = now_ns - total_ns
    else:
        counter.total_ns = total_ns
    counter.changes += 1
    return True


class SlotThread:
    """A thread that keeps the slots of a real engine."""

    def __init__(self, writer: SlotWriter) -> None:
        self._writer = writer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the thread, if there are slots."""
        if self._writer.needed:
            self._thread.start()

    def stop(self) -> None:
        """Let the thread end."""
        self._ended.set()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                now = time.monotonic_ns()
                self._writer.update(now)
                due = self._writer.due_ns
                time.sleep((STEP_NS if due is None else min(max(due - now, 0), STEP_NS)) / 1e9)
        except BaseException as error:
            # The engine's main thread reports it.
            self.error = error
