"""Damaged files of watched processes, from the reading to every output: refused in a sentence, or read with limits.

Opening a recording reads all of its moment.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
from collections.abc import Iterator
from contextlib import closing
from ctypes import sizeof
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.recorded_programs import recorded
from stallprobes.foreign_text import is_printable
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.watch.document import document
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.live.recorder import WatchRecorder
from stallprobes.watch.live.recording import WatchRecording
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process import WatchedProcess
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

ODD = (0, 1, 3, 0xFF, 2**31, 2**32 - 1, 2**40, 2**61, 2**62, 2**63, 2**64 - 1)
STEPS = (-(10**9), 10**6, 10**9, 10**12)


def fields(form: np.dtype[Any], at: int, but: tuple[str, ...] = ()) -> Iterator[tuple[int, int]]:
    """Place and size of each field of a structure that lies ``at`` a place, of text its beginning."""
    assert form.fields is not None
    for name, (field, offset, *_) in form.fields.items():
        if field.names is not None and not field.shape:
            yield from fields(field, at + offset)
        elif name not in but:
            yield at + offset, min(field.itemsize, 8)


def places(process: WatchedProcess) -> list[tuple[int, int]]:
    """The fields of a file that are in use, each slow call and each record as often as the header."""
    found = list(fields(dtype_of(layout.FileHeader), 0, ("magic", "format", "pid")))
    slow_at = layout.Slot.slow.offset
    for thread in process.threads:
        slot = layout.SLOTS_AT + thread.slot * layout.SLOT_PITCH
        found += fields(dtype_of(layout.Slot), slot, ("slow", "calls", "histograms"))
        for number in range(len(thread.slow_calls)):
            found += fields(dtype_of(layout.SlowCall), slot + slow_at + number * sizeof(layout.SlowCall), ("sequence",))
    for number in range(process.records):
        found += fields(
            dtype_of(layout.WatchRecord),
            layout.RECORDS_AT + number * sizeof(layout.WatchRecord),
            ("sequence",),
        )
    found += fields(dtype_of(layout.TimeSample), layout.SAMPLES_AT, ("sequence",))
    found += fields(dtype_of(layout.NamedRange), layout.RANGES_AT)
    return found


def use(folder: Path, out: Path) -> list[str]:
    """Read the folder and make everything that ``watch`` makes of it; the problems of its files."""
    live = LiveProgram(folder, WatchedProgram("program"), keep_ns=None)
    live.update(analyze=True)
    found = live.findings()
    json.dumps(document(found), allow_nan=False)
    text = io.StringIO()
    show_watch(TextWriter(text, width=100), found, "program")
    assert all(is_printable(line) for line in text.getvalue().splitlines())
    chrome.save([TitledTrace(live.whole_trace())], out / "trace.json", {}, force=True)
    record = out / "watch.rec"
    record.unlink(missing_ok=True)
    recorder = WatchRecorder(record, live.trace_of)
    assert live.moment is not None
    recorder.put(live.moment, last=True)
    recorder.close()
    assert recorder.problem == ""
    with closing(WatchRecording(record)) as recording:
        for entry in recording.traces():
            recording.trace(entry.number)
    return list(found.problems)


@pytest.mark.parametrize(("name", "rounds"), [("default_stream_gate", 30), ("secondary_context", 8)])
def test_a_damaged_file_is_refused_in_a_sentence_or_gives_every_output(name: str, rounds: int, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    recorded(name, folder)
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        process = file.read()
    dice, known, refused = random.Random(13), places(process), 0
    assert use(folder, tmp_path) == []
    with path.open("r+b", buffering=0) as changed:
        for _ in range(rounds):
            before = []
            for _ in range(dice.choice((1, 3, 10))):
                at, size = dice.choice(known)
                old = os.pread(changed.fileno(), size, at)
                number = int.from_bytes(old, "little") + dice.choice(STEPS) if size == 8 else dice.choice(ODD)
                number = dice.choice((number, dice.choice(ODD)))
                os.pwrite(changed.fileno(), struct.pack("<Q", number % 2**64)[:size], at)
                before.append((at, old))
            problems = use(folder, tmp_path)
            assert all(problem.endswith(".") for problem in problems)
            refused += bool(problems)
            for at, old in reversed(before):
                os.pwrite(changed.fileno(), old, at)
    assert 0 < refused < rounds
    assert use(folder, tmp_path) == []
