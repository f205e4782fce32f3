"""Values of NVML of the GPUs of watched processes, noted while these run."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from stallprobes.machine.telemetry import Telemetry, TelemetryField

# Time (s) between two readings of a GPU.
PERIOD_S = 1.0
# Largest number of notes of a GPU that are kept. If there are more, every second note is dropped. The distance between
# later notes that are kept doubles, too.
_MOST_NOTES = 4096


# Values of a GPU by the names of their fields, at a time (ns, CLOCK_MONOTONIC).
Note = tuple[int, Mapping[str, Any]]


class GpuNotes:
    """Notes of GPUs by their UUIDs (without GPU-). NVML is read in threads, since its calls can hang.

    Each reading is noted, however long the program that is watched takes to analyze.

    ``fields`` makes the fields that are read. A reading is noted if it has a value of one of those ``needed``.
    """

    def __init__(self, fields: Callable[[], tuple[TelemetryField, ...]], needed: Collection[str]) -> None:
        self._fields, self._needed = fields, needed
        self._telemetry: dict[str, Telemetry] = {}
        self._notes: dict[str, list[Note]] = {}
        self._step_ns: dict[str, int] = {}
        self._why: dict[str, str] = {}
        # A GPU can have two reading threads.
        self._adding = threading.Lock()

    def look(self, uuids: Iterable[str]) -> None:
        """Note the values of the GPUs with these UUIDs from now on; others are not read any more."""
        wanted = set(uuids)
        for uuid in self._telemetry.keys() - wanted:
            self._telemetry.pop(uuid).stop()
        for uuid, telemetry in self._telemetry.items():
            if uuid not in self._notes and (snapshot := telemetry.snapshot()).state == "unavailable":
                self._why[uuid] = snapshot.why or ""
        for uuid in wanted - self._telemetry.keys():
            made = Telemetry(f"GPU-{uuid}", fields=self._fields(), on_values=partial(self._note, uuid))
            self._telemetry[uuid] = made
            made.start()

    def of(self, uuid: str) -> list[Note]:
        """The notes of a GPU, the oldest first."""
        return self._notes.get(uuid, [])

    def why(self, uuid: str) -> str:
        """Why there are no notes of a GPU, as NVML says; "" if there are some, or if it has not answered yet."""
        return "" if self.of(uuid) else self._why.get(uuid, "")

    def between(self, uuid: str, begin_ns: int, end_ns: int) -> list[Note]:
        """The notes of a GPU from one time to another, the oldest first."""
        notes, time = self.of(uuid), itemgetter(0)
        return notes[bisect_left(notes, begin_ns, key=time) : bisect_right(notes, end_ns, key=time)]

    def every(self) -> Iterator[tuple[str, list[Note]]]:
        """All GPUs that have notes, by their UUIDs, in the order of the UUIDs."""
        yield from sorted(self._notes.items())

    def _note(self, uuid: str) -> None:
        telemetry = self._telemetry.get(uuid)
        if telemetry is None:
            return
        with self._adding:
            readings = telemetry.snapshot().readings
            known = [reading.at_ns for name in self._needed if (reading := readings[name]).value is not None]
            if known:
                self._add(uuid, (max(known), {name: reading.value for name, reading in readings.items()}))
            else:
                self._why[uuid] = next((reading.why for reading in readings.values() if reading.why), "")

    def _add(self, uuid: str, note: Note) -> None:
        notes = self._notes.setdefault(uuid, [])
        if notes and note[0] == notes[-1][0]:
            # The other thread has read its values since.
            notes[-1] = note
        if notes and note[0] - notes[-1][0] < self._step_ns.get(uuid, 1):
            return
        notes.append(note)
        if len(notes) > _MOST_NOTES:
            self._notes[uuid] = notes[::2]
            self._step_ns[uuid] = 2 * max(self._step_ns.get(uuid, 0), round(PERIOD_S * 1e9 * 0.9))
