"""Recordings of probes, read from any observation on with little memory for any length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.recording.indexed_recording import IndexedRecording, damage
from stallprobes.recording.line_reader import RecordedLine
from stallprobes.recording.lines import BaselinesLine, ObservationLine, ProbeSetLine
from stallprobes.recording.observation import Observation, ProbeSet

# Largest number of observations in a recording: four days with ten observations a second. The index has 32 bytes for
# each observation.
MOST_OBSERVATIONS = 1 << 22
# Value in place of a position in a recording's file, if no probe set or no baselines have been read yet.
_NONE = -1
# Largest number of decoded probe sets of a recording that are kept in memory. The same limit holds for decoded
# baselines. Reason: several observations (lines with the probes' figures) share a probe set and baselines.
_HELD = 4


class Recording(IndexedRecording):
    """An open recording of probes."""

    def __init__(self, path: Path, progress: Callable[[float], None] = lambda _: None) -> None:
        """Open it as ``IndexedRecording`` does. Raises RecordingError."""
        # Of each observation, the positions of its probe set and its baselines; then those of the next one.
        self._set_at, self._baselines_at = array("q"), array("q")
        self._next_set = self._next_baselines = _NONE
        super().__init__(path, ObservationLine, "observation", MOST_OBSERVATIONS, progress)

    def _note(self, line: RecordedLine) -> None:
        if line.is_of(ProbeSetLine):
            self._next_set, self._next_baselines = line.at, _NONE
        elif line.is_of(BaselinesLine):
            self._next_baselines = line.at
        elif self._next_set != _NONE:
            super()._note(line)
            if len(self) > len(self._set_at):
                self._set_at.append(self._next_set)
                self._baselines_at.append(self._next_baselines)

    def _read_first(self) -> None:
        next(self.play())

    def baselines(self, number: int) -> dict[str, Baseline]:
        """The baselines that were known at observation ``number``."""
        if self._baselines_at[number] == _NONE:
            return {}
        with damage(self.path, f"the baselines of observation {number + 1}"):
            return self._read_baselines(self._baselines_at[number], self._set_at[number])

    def play(self, number: int = 0) -> Iterator[Observation]:
        """The observations from ``number`` on. Their histograms count from there: use differences only."""
        before: Snapshot | None = None
        set_at = _NONE
        for index, text in self._entry_lines(number, len(self)):
            if self._set_at[index] != set_at:
                set_at, before = self._set_at[index], None
            probe_set = self._probe_set(index)
            with damage(self.path, f"observation {index + 1}"):
                observation = ObservationLine.of_text(text).observation(probe_set, before)
            before = observation.snapshot or before
            yield observation

    def _probe_set(self, number: int) -> ProbeSet:
        with damage(self.path, f"the probe set of observation {number + 1}"):
            return self._read_probe_set(self._set_at[number])

    @cached_property
    def _read_probe_set(self) -> Callable[[int], ProbeSet]:
        """The probe set at a position: the same object as before, since an analyzer belongs to one."""
        lines = self._lines
        return lru_cache(_HELD)(lambda at: lines.line(at, ProbeSetLine).probe_set())

    @cached_property
    def _read_baselines(self) -> Callable[[int, int], dict[str, Baseline]]:
        """The baselines at a position, of the probe set at another one."""
        lines, probe_set = self._lines, self._read_probe_set
        return lru_cache(_HELD)(lambda at, set_at: lines.line(at, BaselinesLine).baselines(probe_set(set_at)))
