"""Files of watched processes with changed fields, and all that ``watch`` makes of them, checked as a reader would."""

from __future__ import annotations

import io
import os
import random
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ctypes import sizeof
from pathlib import Path
from typing import Any

import numpy as np

from factories.documents import validate
from stallprobes.foreign_text import is_printable
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.live.recorder import WatchRecorder
from stallprobes.watch.live.recording import WatchRecording
from stallprobes.watch.reading.map_reader import MapFile
from stallprobes.watch.report import document
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

_ODD = (0, 1, 3, 0xFF, 2**31, 2**32 - 1, 2**40, 2**61, 2**62, 2**63, 2**64 - 1)
_STEPS = (-(10**9), 10**6, 10**9, 10**12)
# Numbers of fields that are changed at a time.
_CHANGES = (1, 3, 10)
# Frames of a stack whose addresses are changed.
_FRAMES = 8


def _fields(form: np.dtype[Any], at: int, but: tuple[str, ...] = ()) -> Iterator[tuple[int, int]]:
    """Place and size of each field of a structure that lies ``at`` a place, of text its beginning."""
    assert form.fields is not None
    for name, (field, offset, *_) in form.fields.items():
        if field.names is not None and not field.shape:
            yield from _fields(field, at + offset)
        elif name not in but:
            yield at + offset, min(field.itemsize, 8)


class DamagedFile:
    """The watch file ``path``, whose fields in use are changed; the same ``seed`` makes the same changes."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._dice = path, random.Random(seed)
        self._places = list(_places(path))

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Some fields are others; at the end they are as before."""
        dice, before = self._dice, []
        with self._path.open("r+b", buffering=0) as file:
            for _ in range(dice.choice(_CHANGES)):
                at, size = dice.choice(self._places)
                old = os.pread(file.fileno(), size, at)
                number = int.from_bytes(old, "little") + dice.choice(_STEPS) if size == 8 else dice.choice(_ODD)
                number = dice.choice((number, dice.choice(_ODD)))
                os.pwrite(file.fileno(), struct.pack("<Q", number % 2**64)[:size], at)
                before.append((at, old))
            try:
                yield
            finally:
                for at, old in reversed(before):
                    os.pwrite(file.fileno(), old, at)


def _places(path: Path) -> Iterator[tuple[int, int]]:
    """The fields of a file that are in use, each slow call, record and module as often as the header."""
    with MapFile(path) as file:
        process, modules = file.read(), file.modules()
    yield from _fields(dtype_of(layout.FileHeader), 0, ("magic", "format", "pid"))
    stacks = set()
    for thread in process.threads:
        slot = layout.SLOTS_AT + thread.slot * layout.SLOT_PITCH
        yield from _fields(dtype_of(layout.Slot), slot, ("slow", "calls", "histograms"))
        stacks.add(thread.stack)
        for number, slow in enumerate(thread.slow_calls):
            at = slot + layout.Slot.slow.offset + number * sizeof(layout.SlowCall)
            yield from _fields(dtype_of(layout.SlowCall), at, ("sequence",))
            stacks.add(slow.stack)
    for number in range(process.records):
        at = layout.RECORDS_AT + number * sizeof(layout.WatchRecord)
        yield from _fields(dtype_of(layout.WatchRecord), at, ("sequence",))
    for number in range(len(modules)):
        yield from _fields(dtype_of(layout.Module), layout.MODULES_AT + number * sizeof(layout.Module))
    for number in stacks - {0}:
        at = layout.STACKS_AT + (number - 1) * layout.STACK_PITCH
        yield from _fields(dtype_of(layout.Stack), at, ("ready", "addresses"))
        for frame in range(_FRAMES):
            yield at + layout.Stack.addresses.offset + 8 * frame, 8
    yield from _fields(dtype_of(layout.TimeSample), layout.SAMPLES_AT, ("sequence",))
    yield from _fields(dtype_of(layout.NamedRange), layout.RANGES_AT)


def use(folder: Path, out: Path) -> list[str]:
    """Read a folder and make everything that ``watch`` makes of it; the problems of its files.

    The document follows its schema, and the recording, if it has the moment, is read.
    """
    live = LiveProgram(folder, WatchedProgram("program"), keep_ns=None)
    live.update(analyze=True)
    found = live.findings()
    validate(document(found), "stallscope.watch/3")
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
    assert (recorder.problem, recorder.written + recorder.left_out) == ("", 1)
    if recorder.left_out:
        # Sums of times that are possible may be none.
        assert not record.exists()
        return [*found.problems, f"{recorder.left_out_text}."]
    with closing(WatchRecording(record)) as recording:
        for entry in recording.traces():
            recording.trace(entry.number)
    return list(found.problems)
