"""Mutants of every kind of file that stallscope reads: each is read, or refused with one sentence."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from factories import documents, matrices, mutations, recordings, replayed, runs
from stallprobes.errors import CheckFileError, NotComparable, RecordingError
from stallprobes.files import codec
from stallprobes.matrix import check_file, reference_file, reference_maker
from stallprobes.matrix.reference import ReferenceFingerprint
from stallprobes.recording.common_lines import TraceLine
from stallprobes.recording.lines import BaselinesLine, ObservationLine, ProbeSetLine
from stallprobes.recording.recording import Recording
from stallprobes.recording.recording_format import Line
from stallprobes.traces.codec import StoredTrace
from stallprobes.traces.summary import summary
from stallscope.tui import settings
from stallscope.tui.settings import SettingsError

SEED = 11
# More of them for a long run.
MUTANTS = int(os.environ.get("STALLSCOPE_MUTANTS", "1000"))
# Every one of so many mutants that were read is also used in full, which takes longer than reading.
USED_EVERY = 8


Refusal = type[Exception] | tuple[type[Exception], ...]


class MemoryFile:
    """A file in memory, whose content thousands of mutants replace."""

    def __init__(self, link: Path) -> None:
        self._fd = os.memfd_create("mutant")
        self.path = link
        link.symlink_to(f"/proc/self/fd/{self._fd}")

    def write(self, content: bytes) -> Path:
        """Replace the content."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, content, 0)
        return self.path

    def close(self) -> None:
        """Release the memory."""
        os.close(self._fd)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MemoryFile]:
    one = MemoryFile(tmp_path / "mutant.toml")
    yield one
    one.close()


def outcomes(
    file: MemoryFile,
    contents: Iterator[bytes],
    read: Callable[[Path, int], object],
    refusal: type[Exception] | tuple[type[Exception], ...],
) -> int:
    """The number of mutants that were read. Any other exception than ``refusal`` fails, with the mutant's number."""
    passed = 0
    for number, content in enumerate(contents):
        path = file.write(content)
        try:
            read(path, passed)
            passed += 1
        except refusal as error:
            sentence = str(error)
            assert sentence, number
            assert "\n" not in sentence, (number, sentence)
            assert len(sentence) < 600, (number, sentence)
        except Exception as error:
            raise AssertionError(f"mutant {number}: {error!r}") from error
    return passed


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("base") / "base.rec"
    recordings.record_every_kind(path)
    return path.read_bytes()


def replay(path: Path, _passed: int) -> None:
    replayed.replayed(path)
    replayed.read_all(path)


def seek(path: Path, _passed: int) -> None:
    """Read as the screen does: the index first, then from any observation."""
    found = Recording(path)
    try:
        for number in (0, len(found) - 1):
            for _ in found.play(number):
                pass
            found.baselines(number)
        for one in found.traces():
            summary(found.trace(one.number))
        assert 0 <= found.seconds <= 1e10
    finally:
        found.close()


def test_the_base_of_the_recordings_has_every_key_and_is_read(recording: bytes, file: MemoryFile) -> None:
    lines = recordings.lines_of(recording)
    kinds: tuple[type[Line], ...] = (ProbeSetLine, BaselinesLine, ObservationLine, TraceLine)
    for kind in kinds:
        found = [line[kind.key] for line in lines if kind.key in line]
        assert set().union(*found) == set(kind.__struct_fields__)
    (trace,) = (line["trace"]["trace"] for line in lines if "trace" in line)
    assert set(trace) | {"simulated", "kernels", "unrecorded", "engine_since_ns", "counters"} == set(
        StoredTrace.__struct_fields__
    )
    observed = [line["observation"] for line in lines if "observation" in line]
    path = file.write(recordings.recording_of(lines))
    with closing(Recording(path)) as read:
        assert (len(read), read.cut_off) == (len(observed), False)
    seek(path, 0)


@pytest.mark.parametrize(("read", "count"), [(replay, MUTANTS // 2), (seek, MUTANTS // 4)])
def test_a_recording_with_right_checksums_and_other_content(
    read: Callable[[Path, int], object], count: int, recording: bytes, file: MemoryFile
) -> None:
    base = recordings.lines_of(recording)
    known = {id(line): recordings.encoded(line) for line in base}
    contents = (recordings.recording_of(mutant, known) for mutant in mutations.mutants(base, SEED, count))
    assert count / 20 < outcomes(file, contents, read, RecordingError) < count


def test_a_recording_with_damaged_bytes(recording: bytes, file: MemoryFile) -> None:
    contents = mutations.damaged(recording, SEED, MUTANTS // 4)
    assert outcomes(file, contents, replay, RecordingError) > MUTANTS / 80
    lines = [recordings.encoded(line) for line in recordings.lines_of(recording)]
    damaged = (
        recordings.sealed([*lines[:2], next(mutations.damaged(lines[2 + n % (len(lines) - 2)], n, 1))])
        for n in range(MUTANTS // 4)
    )
    outcomes(file, damaged, replay, RecordingError)


@pytest.mark.parametrize("packed", [False, True])
def test_a_check(packed: bool, file: MemoryFile) -> None:
    matrix = matrices.made_up(1, rows=matrices.ROWS[:1], columns=matrices.COLUMNS[:2], calls=20, repeats=1)
    base = json.loads(json.dumps(documents.of_check(matrix)))

    def read(path: Path, passed: int) -> None:
        found = check_file.load(path)
        found.findings()
        if passed % USED_EVERY == 0:
            documents.of_check(found)

    assert MUTANTS / 20 < outcomes(file, encoded(base, packed), read, CheckFileError) < MUTANTS


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_is_no_check(packed: bool, file: MemoryFile) -> None:
    base = codec.plain(runs.run(runs.variant("x", runs.stalled())))
    # The buckets would take most of the time.
    del base["variants"][1:], base["variants"][0]["probes"]
    assert outcomes(file, encoded(base, packed), lambda path, _: check_file.load(path), CheckFileError) == 0


def test_a_reference(file: MemoryFile) -> None:
    machine: dict[str, object] = dict.fromkeys(ReferenceFingerprint.__struct_fields__, "1")
    machine |= {"hostname": "node-a", "gpu": "Made-up GPU", "memory_bytes": 1 << 30, "mig": False, "mps": False}
    checks = [
        matrices.made_up(seed, rows=matrices.ROWS[:1], columns=matrices.COLUMNS[:2], fingerprint=machine)
        for seed in (1, 2)
    ]
    base = json.loads(reference_file.text(reference_maker.make("made-up", checks)))

    def read(path: Path, _passed: int) -> None:
        reference_file.load(path).unusual(checks[0])

    assert MUTANTS / 20 < outcomes(file, encoded(base), read, (CheckFileError, NotComparable)) < MUTANTS


def test_settings(file: MemoryFile) -> None:
    base = 'theme = "nord"\nascii = true\nframes_per_second = 20\nquiet_seconds = 3.0\nhistory_seconds = 30\n'
    base += 'freeze_above_ms = 2.5\n[keys]\npause = "f2"\nquit = "Q"\n'
    contents = (text.encode(errors="surrogatepass") for text in mutations.damaged_lines(base, SEED, MUTANTS))
    assert MUTANTS / 20 < outcomes(file, contents, lambda path, _: settings.load(path), SettingsError) < MUTANTS


def encoded(base: Any, packed: bool | None = None) -> Iterator[bytes]:
    """Mutants of ``base`` as JSON: all of them, or the half that is ``packed`` or not."""
    for mutant in mutations.mutants(base, SEED + bool(packed), MUTANTS if packed is None else MUTANTS // 2):
        content = json.dumps(mutant).encode()
        yield gzip.compress(content, 1) if packed else content
