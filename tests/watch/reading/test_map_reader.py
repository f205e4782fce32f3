"""The reader of a watched process's file: what it makes of a good one, and of one that is damaged or hostile."""

from __future__ import annotations

import os
import random
import re
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from factories.watch_files import APIS, COPIES, LAUNCHES, PARTS, SECOND, write_watch_file
from factories.watched_folders import activity_records, read_folder
from stallprobes.errors import WatchError
from stallprobes.foreign_text import is_printable
from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.native.layouts.watch_file import CallFlag, Flag, LossKind, WatchState
from stallprobes.watch.reading import folder as folder_module
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.folder import check_folder, create_folder
from stallprobes.watch.reading.map_reader import MOST, MOST_IN_RECORD, IncompleteFile, MapFile
from stallprobes.watch.reading.process import RecordBatch, WatchedProcess
from stallprobes.watch.reading.stack_reader import StackReader
from stallprobes.watch.reading.words import ProcessState
from stallprobes.wording.watch_wording import state_problem

PID = 4321
# Numbers that a careless reader takes for others.
ODD = (1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good file."""
    found = tmp_path / f"{PID}-0.watch"
    write_watch_file(found)
    return found


def read(path: Path) -> tuple[WatchedProcess, RecordBatch]:
    """Everything in the file; of its stacks, see ``read_stacks``."""
    with MapFile(path) as file:
        process, records = file.read(), file.records()
        file.samples()
    read_stacks(path, process)
    return process, records


def read_stacks(path: Path, process: WatchedProcess) -> dict[int, CallStack]:
    """The call stacks of the threads and slow calls by their number."""
    reader = StackReader()
    with MapFile(path) as file:
        reader.read(file, process)
    assert all(map(is_printable, texts(list(reader.stacks.values()))))
    return reader.stacks


def change(path: Path, offset: int, data: bytes) -> None:
    """Replace bytes of the file."""
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), data, offset)


def at(structure: Any, name: str) -> int:
    """The offset of a field."""
    return int(structure.fields[name][1])


def texts(value: Any) -> Iterator[str]:
    """All strings in ``value``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from texts(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from texts(getattr(value, name))
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))


def test_the_flags_say_which_frames_are_recorded(path: Path) -> None:
    for flags, expected in (
        (Flag.NATIVE_STACKS | Flag.PYTHON_STACKS, (True, True, False)),
        (Flag.FREE_THREADED, (False, False, True)),
    ):
        change(path, at(dtype_of(layout.FileHeader), "flags"), int(flags).to_bytes(4, "little"))
        process, _ = read(path)
        assert (process.native_stacks, process.python_stacks, process.free_threaded) == expected


def test_a_file_is_read_as_typed_values(path: Path) -> None:
    process, batch = read(path)
    assert (process.pid, process.image, process.state) == (PID, 0, ProcessState.RECORDING)
    assert (process.name, process.command, state_problem(process)) == ("train", "python train.py", None)
    assert (process.kinds, process.calls, process.lost_calls) == (frozenset({1, 10}), 5, 0)
    (thread,) = process.threads
    assert (thread.id, thread.name, thread.stack) == (PID, "MainThread", 1)
    assert set(thread.figures) == set(APIS[:2])
    assert thread.figures["cuLaunchKernel"].total == Histogram.of(LAUNCHES)
    assert thread.figures["cuMemcpyDtoHAsync_v2"].total == Histogram.of(COPIES)
    (call,) = thread.in_flight
    assert (call.function, call.family, call.stream, call.bytes) == ("cuStreamSynchronize", CallFamily.WAIT, 7, None)
    (slow,) = thread.slow_calls
    assert (slow.function, slow.duration_ns) == ("cuLaunchKernel", 1_500_000)
    assert (len(batch), batch.missed, batch.next) == (8, 0, 8)
    assert {record.name for record in activity_records(batch)} == {"_Z3addv"}
    assert process.python == "3.12.4"
    stack = read_stacks(path, process)[slow.stack]
    assert [(frame.file, frame.line, frame.function) for frame in stack.python] == [("/home/me/train.py", 42, "step")]
    assert [(frame.file, frame.offset) for frame in stack.native] == [
        ("/opt/solver/solver", 0x1234), ("", 0x7F0000001234)
    ]  # fmt: skip
    with MapFile(path) as file:
        (module,) = file.modules()
    assert (module.build_id, module.path) == (b"\xab\xcd", "/opt/solver/solver")


def test_records_are_read_from_where_the_last_batch_ended(path: Path) -> None:
    with MapFile(path) as file:
        assert len(file.records(5)) == 3
        assert len(file.records(8)) == 0
        # A position that is not of this file.
        assert len(file.records(2**40)) == 0
        assert len(file.records(-5)) == 8


def test_records_that_were_overwritten_are_counted_as_missed(path: Path) -> None:
    write_watch_file(path, records=layout.RECORDS + 3)
    for number in range(3):
        sequence = struct.pack("<Q", 2 * (layout.RECORDS + number) + 2)
        change(path, layout.RECORDS_AT + number * dtype_of(layout.WatchRecord).itemsize, sequence)
    with MapFile(path) as file:
        late, early = file.records(layout.RECORDS), file.records()
    assert (len(late), late.missed, late.next) == (3, 0, layout.RECORDS + 3)
    # Of the ring, this file has the first eight places only; the fourth record may be overwritten at this moment.
    assert (len(early), early.missed) == (7, layout.RECORDS - 4)
    assert [record.correlation for record in activity_records(early)] == [4, 5, 6, 7, 0, 1, 2]


def test_arguments_beyond_all_sense_are_read_as_the_largest_number(path: Path) -> None:
    place = layout.SLOTS_AT + at(dtype_of(layout.Slot), "slow") + at(dtype_of(layout.SlowCall), "call")
    change(path, place + at(dtype_of(layout.Call), "stream"), b"\xff" * 8)
    change(path, place + at(dtype_of(layout.Call), "bytes"), b"\xff" * 8)
    change(path, place + at(dtype_of(layout.Call), "flags"), bytes([CallFlag.STREAM | CallFlag.BYTES]))
    change(path, layout.RECORDS_AT + at(dtype_of(layout.WatchRecord), "bytes"), b"\xff" * 8)
    process, batch = read(path)
    (call,) = (slow for thread in process.threads for slow in thread.slow_calls)
    assert (call.stream, call.bytes) == (MOST, MOST)
    assert next(activity_records(batch)).bytes == MOST_IN_RECORD


def test_a_stack_that_is_being_written_is_read_later(path: Path) -> None:
    change(path, layout.STACKS_AT, b"\0\0\0\0")
    process, _ = read(path)
    assert read_stacks(path, process) == {}
    change(path, layout.STACKS_AT, b"\1\0\0\0")
    assert len(read_stacks(path, process)) == 1


def test_what_is_being_written_is_left_out(path: Path) -> None:
    slot = layout.SLOTS_AT
    change(path, slot + at(dtype_of(layout.Slot), "sequence"), struct.pack("<Q", 9))
    change(path, slot + at(dtype_of(layout.Slot), "slow"), struct.pack("<Q", 1))
    change(path, layout.RECORDS_AT + 3 * dtype_of(layout.WatchRecord).itemsize, struct.pack("<Q", 7))
    process, batch = read(path)
    (thread,) = process.threads
    assert (thread.in_flight, thread.slow_calls) == ((), ())
    assert (len(batch), batch.missed) == (7, 1)


@pytest.mark.parametrize("state", [state for state in WatchState if state is not WatchState.RECORDING])
def test_only_a_library_that_records_knows_of_calls_in_flight(path: Path, state: WatchState) -> None:
    write_watch_file(path, state=state, function=b"cuptiSubscribe", code=15)
    process, _ = read(path)
    assert process.threads[0].in_flight == ()
    assert process.calls == 5
    assert (state_problem(process) is None) == (state is WatchState.STARTING)
    if state is WatchState.CUPTI_FAILED:
        assert state_problem(process) == (
            "train (pid 4321): CUPTI cannot be used in it, so nothing was recorded (cuptiSubscribe returned 15)"
        )


def test_a_maximum_that_is_not_yet_written_is_that_of_the_buckets(path: Path) -> None:
    change(path, layout.HISTOGRAMS_AT + at(dtype_of(layout.CallHistogram), "max_ns"), struct.pack("<Q", 5))
    longest = read(path)[0].threads[0].figures["cuLaunchKernel"].total.max_ns
    assert longest == pytest.approx(max(LAUNCHES), rel=1 / 64)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("magic", 0, "not complete: its beginning"),
        ("magic", 1, "not the file of a watched process"),
        ("format", 1, "has the format 1; this version reads 9"),
        ("pid", 5, "names another process"),
        ("state", 99, "unknown state 99"),
        ("slots", 2**32 - 1, "number of slots"),
        ("records", 2**63, "time or count"),
        ("name_bytes", 2**31, "size of the names"),
        ("started_ns", 2**64 - 1, "time or count"),
    ],
)
def test_a_damaged_header_gives_a_sentence(path: Path, field: str, value: int, words: str) -> None:
    write_watch_file(path, **{field: value})
    with pytest.raises(WatchError, match=words) as caught:
        read(path)
    assert re.fullmatch(r"[^\n]*\.", str(caught.value))


@pytest.mark.parametrize(
    ("offset", "data", "words"),
    [
        (layout.SLOTS_AT + at(dtype_of(layout.Slot), "depth"), b"\5\0\0\0", "number of calls in flight"),
        (layout.SLOTS_AT + at(dtype_of(layout.Slot), "histograms") + 4, b"\1\0\0\0", "two functions"),
        (layout.SLOTS_AT + at(dtype_of(layout.Slot), "histograms"), b"\xff" * 4, "or to none"),
        (layout.SLOTS_AT + at(dtype_of(layout.Slot), "slow") + 8, b"\0" * 8, "ends before it starts"),
        (layout.HISTOGRAMS_AT, b"\7\0\0\0", "impossible values"),
        (layout.HISTOGRAMS_AT + at(dtype_of(layout.CallHistogram), "counts"), b"\xff" * 8, "impossible values"),
        (layout.RECORDS_AT + at(dtype_of(layout.WatchRecord), "kind"), b"\5\0", "unknown kind"),
        (layout.RECORDS_AT + at(dtype_of(layout.WatchRecord), "name"), b"\xff\xff\0\0", "outside its names"),
        (layout.NAMES_AT, b"\xff\0\0\0", "outside its names"),
        (
            layout.SLOTS_AT + at(dtype_of(layout.Slot), "slow") + at(dtype_of(layout.SlowCall), "stack"),
            b"\xff\xff\0\0",
            "call stack number",
        ),
        (layout.SLOTS_AT + at(dtype_of(layout.Slot), "stack"), b"\xff\xff\0\0", "call stack number"),
        (layout.STACKS_AT + at(dtype_of(layout.Stack), "frames"), b"\xff\0\0\0", "number of frames"),
        (layout.STACKS_AT + at(dtype_of(layout.Stack), "text_bytes"), b"\xff\xff\0\0", "size of a stack"),
        (layout.MODULES_AT + at(dtype_of(layout.Module), "build_id_bytes"), b"\x15\0\0\0", "size of a build id"),
    ],
)
def test_damage_elsewhere_gives_a_sentence(path: Path, offset: int, data: bytes, words: str) -> None:
    change(path, offset, data)
    with pytest.raises(WatchError, match=words):
        read(path)


def test_any_number_at_any_place_gives_a_process_or_a_sentence(path: Path) -> None:
    dice = random.Random(13)
    read_well, sentences = 0, set[str]()
    for _ in range(800):
        offset, size = dice.choice(PARTS)
        place = offset + dice.randrange(size - 8) // 4 * 4
        data = dice.choice([struct.pack("<Q", dice.choice(ODD)), dice.randbytes(dice.randrange(1, 9))])
        with path.open("rb") as file:
            before = os.pread(file.fileno(), len(data), place)
        change(path, place, data)
        try:
            process, batch = read(path)
            assert all(map(is_printable, texts(process)))
            assert all(map(is_printable, texts(list(activity_records(batch)))))
            assert process.calls >= 0
            read_well += 1
        except WatchError as error:
            sentences.add(str(error)[-1])
        change(path, place, before)
    assert read_well > 250
    assert sentences == {"."}
    read(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("at_ns", 2**63, "sample with the at_ns of"),
        ("since_ns", 2**62, "a sample that ends before it begins"),
        ("ns", 2**56, "sample with the ns of"),
        ("cpu_ns", 2**63, "sample with the cpu_ns of"),
        ("stack", layout.STACKS + 1, "sample with the stack of"),
        ("api", layout.APIS, "sample with the api of"),
        ("sampled", 3, "sample with the sampled of"),
    ],
)
def test_a_damaged_sample_gives_a_sentence(path: Path, name: str, value: int, words: str) -> None:
    form = dtype_of(layout.TimeSample)
    assert form.fields is not None
    change(path, layout.SAMPLES_AT + at(form, name), value.to_bytes(form[name].itemsize, "little"))
    with MapFile(path) as file, pytest.raises(WatchError, match=words):
        file.samples()


def test_samples_are_read_from_a_position_on(path: Path) -> None:
    with MapFile(path) as file:
        batch = file.samples()
        assert (len(batch), batch.next, batch.missed) == (2, 2, 0)
        assert batch.functions == {0: APIS[0], 1: APIS[1]}
        assert (batch.rows["ns"] == layout.SAMPLE_NS).all()
        assert [len(file.samples(first)) for first in (0, 1, 2, 2**40)] == [2, 1, 0, 0]
    # One that is still written comes with the next batch, as do those behind it.
    change(path, layout.SAMPLES_AT, (1).to_bytes(8, "little"))
    with MapFile(path) as file:
        batch = file.samples()
        assert (len(batch), batch.next, batch.missed) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("begun", 2**63, "time or count"),
        ("inside_ns", 2**63, "time or count"),
        ("begins", 2**63, "time or count"),
        ("begins", 2**50, "ranges that do not begin in their order"),
    ],
)
def test_a_damaged_range_gives_a_sentence(path: Path, name: str, value: int, words: str) -> None:
    form = dtype_of(layout.NamedRange)
    change(path, layout.RANGES_AT + at(form, name), value.to_bytes(8, "little"))
    with MapFile(path) as file, pytest.raises(WatchError, match=words):
        file.read()


def test_ranges_have_their_last_begins(path: Path) -> None:
    form = dtype_of(layout.NamedRange)
    with MapFile(path) as file:
        (found,) = file.read().ranges
    assert (found.name, found.thread, found.begun, found.inside_ns) == ("step #", PID, 3, 2_000_000)
    assert np.diff(found.begins).tolist() == [1_000_000] * 2
    # The oldest may just be overwritten.
    change(path, layout.RANGES_AT + at(form, "begun"), (layout.RANGE_BEGINS).to_bytes(8, "little"))
    change(path, layout.RANGES_AT + at(form, "begins"), np.arange(layout.RANGE_BEGINS, dtype=np.uint64).tobytes())
    with MapFile(path) as file:
        (found,) = file.read().ranges
    assert found.begins.tolist() == list(range(1, layout.RANGE_BEGINS))
    # One that another thread prepares.
    change(path, layout.RANGES_AT + at(form, "use"), bytes(4))
    with MapFile(path) as file:
        assert not file.read().ranges


def test_random_bytes_give_a_sentence(path: Path) -> None:
    dice = random.Random(7)
    head = struct.pack("<QIII", layout.FILE_MAGIC, layout.FILE_FORMAT, 0, PID)
    for number in range(30):
        change(path, 0, dice.randbytes(layout.RECORDS_AT))
        change(path, layout.SLOTS_AT, dice.randbytes(4 * layout.SLOT_PITCH))
        if number % 2:
            change(path, 0, head)
        with pytest.raises(WatchError):
            read(path)


def test_the_file_of_another_version_which_has_another_size_gives_a_sentence(path: Path) -> None:
    write_watch_file(path, format=layout.FILE_FORMAT - 1)
    os.truncate(path, layout.FILE_BYTES - 4096)
    with pytest.raises(WatchError, match="this version reads"):
        read(path)


@pytest.mark.parametrize("size", [0, 7, dtype_of(layout.FileHeader).itemsize, layout.SLOTS_AT, layout.FILE_BYTES - 1])
def test_a_cut_file_gives_a_sentence(path: Path, size: int) -> None:
    os.truncate(path, size)
    with pytest.raises(IncompleteFile, match=f"has {size} of {layout.FILE_BYTES} bytes"):
        read(path)
    path.parent.chmod(0o700)
    contents = read_folder(path.parent)
    assert (contents.processes, contents.problems, contents.incomplete) == ((), (), 1)


def test_a_file_that_is_too_long_gives_a_sentence(path: Path) -> None:
    os.truncate(path, layout.FILE_BYTES + 1)
    with pytest.raises(WatchError, match="in place of"):
        read(path)


def test_a_file_that_is_cut_while_it_is_open_gives_a_sentence(path: Path) -> None:
    with MapFile(path) as file:
        os.truncate(path, layout.SLOTS_AT)
        with pytest.raises(WatchError, match="ends before its size"):
            file.read()


def test_what_is_no_own_regular_file_is_not_read(path: Path, tmp_path: Path) -> None:
    link, pipe, other = (tmp_path / f"{number}-0.watch" for number in (1, 2, 3))
    link.symlink_to(path)
    os.mkfifo(pipe)
    other.mkdir()
    named = path.rename(tmp_path / "watch")
    for found, words in ((link, "cannot be opened"), (pipe, "not a regular file"), (other, "not a regular file"),
                         (named, "is not named like")):  # fmt: skip
        with pytest.raises(WatchError, match=words):
            MapFile(found)
    contents = read_folder_of(tmp_path)
    assert (contents.processes, len(contents.problems)) == ((), 3)


def read_folder_of(folder: Path) -> Any:
    folder.chmod(0o700)
    return read_folder(folder)


def test_a_folder_is_read_with_a_sentence_for_each_bad_file(path: Path, tmp_path: Path) -> None:
    write_watch_file(tmp_path / "9-1.watch", state=99)
    write_watch_file(tmp_path / "9-0.watch")
    (tmp_path / "unrelated").touch()
    contents = read_folder_of(tmp_path)
    assert [(process.pid, process.image) for process in contents.processes] == [(9, 0), (PID, 0)]
    (problem,) = contents.problems
    assert problem.startswith(str(tmp_path / "9-1.watch"))


def test_a_new_folder_is_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(folder_module, "_ROOM_BYTES", 0)
    assert create_folder().parent == tmp_path
    monkeypatch.setattr(folder_module, "_ROOM_BYTES", 2**63)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert create_folder().parent == tmp_path / "temporary"
    with pytest.raises(WatchError, match="set TMPDIR"):
        create_folder(tmp_path / "missing")


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    check_folder(folder)
    folder.chmod(0o750)
    with pytest.raises(WatchError, match="can be used by others"):
        check_folder(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(WatchError, match="is not a folder"):
        check_folder(link)
    with pytest.raises(WatchError, match="cannot be read"):
        check_folder(tmp_path / "missing")


def test_what_a_program_calls_itself_cannot_reach_the_terminal(path: Path) -> None:
    write_watch_file(path, program=b"\x1b[2J", command="python \u202e.py".encode(), losses=[*range(1, 10), 0, 0, 0])
    process, _ = read(path)
    assert (process.name, process.command) == ("\ufffd[2J", "python \ufffd.py")
    assert process.losses[LossKind.BEFORE_FILE] == 4
    assert (process.lost_calls, process.lost_records) == (10, 13)
    assert process.started.monotonic_ns == SECOND
