"""Recordings of probes, read from any observation on or once from the beginning: little memory for any length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.recording.common_lines import TraceLine
from stallprobes.recording.indexed_recording import IndexedRecording, damage
from stallprobes.recording.line_reader import RecordedLine, RecordingLines
from stallprobes.recording.lines import BaselinesLine, ObservationLine, ProbeSetLine
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.traces.trace import Trace

# Each takes 32 bytes; four days with ten a second.
MOST_OBSERVATIONS = 1 << 22
_NONE = -1
_HELD = 4


class Recording(IndexedRecording):
    """An open recording of probes."""

    def __init__(self, path: Path, progress: Callable[[float], None] = lambda _: None) -> None:
        """Open it as ``IndexedRecording`` does. Raises RecordingError."""
        # Of each observation, the positions of its probe set and its baselines; then those of the next one.
        self._set_at, self._baselines_at = array("q"), array("q")
        self._next_set = self._next_baselines = _NONE
        excess = f"{path} has more than {MOST_OBSERVATIONS} observations; use: stallscope replay --json"
        super().__init__(path, ObservationLine, "observation", MOST_OBSERVATIONS, excess, progress)

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


@dataclass(frozen=True, eq=False)
class RecordedMoment:
    """An observation and the baselines that the recording knew then, by probe."""

    observation: Observation
    baselines: dict[str, Baseline]


class RecordingStream:
    """The moments and traces of the recording ``path``. ``cut_off`` is True once a missing or damaged end was met.

    ``damage`` is then a sentence with the place if the content there is damaged, else None. ``progress`` is called with
    the share (0 to 1) of the file that is read.
    """

    def __init__(self, path: Path, progress: Callable[[float], None] = lambda _: None) -> None:
        self.path = path
        self._progress = progress
        self.cut_off = False
        self.damage: str | None = None

    def readable_items(self) -> Iterator[RecordedMoment | Trace]:
        """The moments and traces up to the first damaged one. Raises RecordingError if there is none before it."""
        begun = False
        try:
            for item in self.items():
                begun = True
                yield item
        except RecordingError as error:
            if not begun:
                raise
            self.cut_off, self.damage = True, str(error)

    def items(self) -> Iterator[RecordedMoment | Trace]:
        """The moments and traces in the order in which they were written: a trace comes after the time that it shows.

        Raises RecordingError for an unreadable or damaged file, another format, and a newer version.
        """
        probe_set: ProbeSet | None = None
        baselines: dict[str, Baseline] = {}
        before: Snapshot | None = None
        number = trace = 1
        with closing(RecordingLines(self.path)) as lines:
            for line in lines.read():
                self._progress(lines.share)
                if line.is_of(ProbeSetLine):
                    with damage(self.path, f"the probe set of observation {number}"):
                        probe_set, baselines, before = ProbeSetLine.of_text(line.text).probe_set(), {}, None
                elif probe_set is None:
                    continue
                elif line.is_of(BaselinesLine):
                    with damage(self.path, f"the baselines of observation {number}"):
                        baselines = BaselinesLine.of_text(line.text).baselines(probe_set)
                elif line.is_of(ObservationLine):
                    with damage(self.path, f"observation {number}"):
                        observation = ObservationLine.of_text(line.text).observation(probe_set, before)
                    before, number = observation.snapshot or before, number + 1
                    yield RecordedMoment(observation, baselines)
                elif line.is_of(TraceLine):
                    with damage(self.path, f"trace {trace}"):
                        found = TraceLine.of_text(line.text).trace.trace()
                    trace += 1
                    yield found
            self.cut_off = lines.cut_off
