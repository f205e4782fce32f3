"""Stream over a recording: read once from its beginning, in memory that does not depend on its length."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stallprobes.engine.board import Snapshot
from stallprobes.errors import RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.live import recording
from stallprobes.live.observation import Observation, ProbeSet

_CHUNK = 1 << 16
# A longer line is damage: an observation takes some kilobytes.
_LONGEST_LINE = 1 << 23
_LONGEST_HEAD = 1 << 16
# What decoding a line with a right checksum and another content can raise.
_NO_OBSERVATION = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, eq=False)
class RecordedMoment:
    """An observation and the baselines that the recording knew then, by probe."""

    observation: Observation
    baselines: dict[str, Baseline]


class RecordingStream:
    """The moments of the recording ``path``, in order. ``cut_off`` is True once a missing or damaged end was met."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off = False

    def __iter__(self) -> Iterator[RecordedMoment]:
        """Read the recording.

        Raises RecordingError for an unreadable file, another format, a newer version, and a moment that is none.
        """
        try:
            with self.path.open("rb") as file:
                recording.check_head(self.path, file.readline(_LONGEST_HEAD))
                yield from self._moments(file)
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}") from error

    def _moments(self, file: BinaryIO) -> Iterator[RecordedMoment]:
        probe_set: ProbeSet | None = None
        baselines: dict[str, Baseline] = {}
        before: Snapshot | None = None
        for number, line in enumerate(self._lines(file)):
            try:
                known = json.loads(line)
                if "bench" in known:
                    probe_set, baselines, before = recording.probe_set_in(known["bench"]), {}, None
                elif "quiet" in known:
                    baselines = recording.baselines_in(known)
                elif "f" in known and probe_set is not None:
                    observation = recording.observation_in(known["f"], probe_set, before)
                    _check_probes(observation)
                    before = observation.snapshot or before
                    yield RecordedMoment(observation, baselines)
            except _NO_OBSERVATION as error:
                raise RecordingError(
                    f"{self.path} is damaged: line {number + 1} of its content is no observation"
                ) from error

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """The lines up to the first damaged one, without their checksums."""
        decompressor, rest = zlib.decompressobj(), b""
        more = True
        while more and not decompressor.eof and len(rest) <= _LONGEST_LINE:
            chunk = decompressor.unconsumed_tail or file.read(_CHUNK)
            more = bool(chunk)
            try:
                rest += decompressor.decompress(chunk, _CHUNK) if chunk else decompressor.flush()
            except zlib.error:
                break
            *lines, rest = rest.split(b"\n")
            for line in lines:
                checksum, _, text = line.partition(b" ")
                if checksum != f"{zlib.crc32(text):08x}".encode():
                    self.cut_off = True
                    return
                yield text
        # Without a newline at its end the last line is incomplete.
        self.cut_off = bool(rest) or not decompressor.eof


def _check_probes(observation: Observation) -> None:
    """Raise KeyError if a probe of the set is missing in the snapshot."""
    if observation.snapshot is not None:
        for probe in observation.probe_set.probes:
            observation.snapshot.probes[probe.name]
