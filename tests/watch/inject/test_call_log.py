"""The log of all calls: what threads of host programs write to it, and what a reader gets of it meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factories.stand_in import StandIn
from factories.watch_files import SECOND, write_watch_file
from stallprobes.errors import WatchError
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.watch_file import CallFlag, LossKind
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.map_reader import CallPosition, MapFile, watch_files
from stallprobes.watch.reading.process import CallBatch, WatchedProcess

CALLS_ONLY = WatchOptions(calls_only=True, cost=1.0)
IN_LOG = layout.CALL_BLOCKS * layout.BLOCK_CALLS


def read_log(folder: Path, position: CallPosition | None = None) -> tuple[WatchedProcess, CallBatch]:
    """The one process in ``folder``, with the calls of its log since ``position``."""
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        process = file.read()
        return process, file.calls(position or CallPosition(), process)


def test_every_call_is_in_the_log_with_its_thread(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "threads", "20", "1000", options=CALLS_ONLY)
    process, batch = read_log(tmp_path / "out")
    assert (len(batch), batch.missed, process.losses[LossKind.NO_BLOCK]) == (20 * 1000, 0, 0)
    for thread in process.threads:
        own = batch.rows[batch.rows["thread"] == thread.id]
        assert len(own) == thread.calls == 1000
        # One call after the other, each with its own number.
        assert (own["began_ns"][1:] >= own["returned_ns"][:-1]).all()
        assert len(set(own["correlation"].tolist())) == 1000
        longest = (own["returned_ns"] - own["began_ns"]).max()
        assert longest == max(figures.total.max_ns for figures in thread.figures.values())
    assert (np.diff(batch.rows["returned_ns"]) >= 0).all()
    assert set(batch.functions.values()) == {"cuLaunchKernel"}
    assert not (batch.rows["flags"] & CallFlag.NESTED).any()


def test_of_queries_in_a_row_few_are_logged(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "queries", options=CALLS_ONLY)
    process, batch = read_log(tmp_path / "out")
    rows, (thread,) = batch.rows, process.threads
    (query,) = (number for number, name in batch.functions.items() if name == "cuEventQuery")
    assert (rows["function"] == query).tolist()[-3:] == [True, False, True]
    assert thread.figures["cuEventQuery"].total.count == 1001
    own = rows[rows["function"] == query]
    # Each that differs from one of the two before; of the others one in 20 us.
    assert own["correlation"].tolist()[:12] == list(range(1, 13))
    assert own["correlation"][-1] == 1002
    alike = own[11:-1]
    distances = alike["began_ns"][1:].astype(int) - alike["returned_ns"][:-1].astype(int)
    assert (distances >= layout.QUERIES_NS).all()


# With a limit of 0 all calls are slow, and none is plain.
@pytest.mark.parametrize("slow_ns", [layout.DEFAULT_SLOW_NS, 0])
def test_a_launch_is_logged_alike_whatever_surrounds_it(stand_in: StandIn, tmp_path: Path, slow_ns: int) -> None:
    stand_in.run(tmp_path / "out", "launches", options=WatchOptions(calls_only=True, slow_ns=slow_ns, cost=1.0))
    process, batch = read_log(tmp_path / "out")
    rows, (thread,) = batch.rows, process.threads
    assert len(rows) == process.calls == 600 + 3 * 5 + 3
    assert process.losses[LossKind.UNMATCHED] == 3 * 2
    assert set(rows["context"].tolist()) == {3}
    many, others, with_config = rows[:600], rows[600:-3], rows[-3:]
    assert many["correlation"].tolist() == list(range(1000, 1600))
    assert many["stream"].tolist() == [0x11, 0x12, 0x13] * 200
    assert set(many["flags"].tolist()) == {int(CallFlag.STREAM)}
    stream, nested, copied = int(CallFlag.STREAM), int(CallFlag.NESTED), int(CallFlag.BYTES)
    expected = [(1, 0x13, stream | nested), (0, 0x22, stream | copied), (3, 0x13, stream), (5, 0x13, stream), (7, 0, 0)]
    assert [(row["correlation"], row["stream"], row["flags"]) for row in others] == [
        (1600 + 10 * time + number, *more) for time in range(3) for number, *more in expected
    ]
    assert with_config["stream"].tolist() == [0x33, 0x33, 0]
    assert set(with_config["flags"].tolist()) == {stream}
    launches = thread.figures["cuLaunchKernel"]
    assert (launches.total.count, launches.failed) == (612, 6)
    assert launches.total_ns == sum(
        int(row["returned_ns"] - row["began_ns"]) for row in rows[:-3] if row["stream"] != 0x22
    )


def test_a_new_stream_has_its_handle_and_whether_it_is_ordered_with_the_default_stream(
    stand_in: StandIn, tmp_path: Path
) -> None:
    outcome = stand_in.run(tmp_path / "out", "streams", options=CALLS_ONLY)
    _, batch = read_log(tmp_path / "out")
    assert set(batch.functions.values()) == {"cuStreamCreate"}
    assert batch.rows["stream"].tolist() == [int(outcome.output)] * 2
    assert batch.rows["flags"].tolist() == [CallFlag.STREAM | CallFlag.BLOCKING, int(CallFlag.STREAM)]


def test_more_threads_than_ever_live_at_a_time_share_the_blocks(stand_in: StandIn, tmp_path: Path) -> None:
    threads = layout.SLOTS * 3 // 2
    stand_in.run(tmp_path / "out", "short-threads", str(threads), "5", "8", options=CALLS_ONLY)
    process, batch = read_log(tmp_path / "out")
    assert (len(batch), batch.missed, len(set(batch.rows["thread"].tolist()))) == (5 * threads, 0, threads)
    assert process.losses[LossKind.NO_BLOCK] == 0


def test_the_last_calls_stay_and_the_others_are_known_to_be_missed(stand_in: StandIn, tmp_path: Path) -> None:
    calls, threads = IN_LOG // 2, 3
    stand_in.run(tmp_path / "out", "threads", str(threads), str(calls), options=CALLS_ONLY)
    process, batch = read_log(tmp_path / "out")
    assert process.calls == threads * calls
    assert len(batch) + batch.missed == process.calls
    assert 0 < len(batch) <= IN_LOG
    # Those that ended last.
    for thread in process.threads:
        assert (batch.rows["thread"] == thread.id).sum() < thread.calls
    # What is missing had returned before the first call of each thread that is left.
    firsts = [batch.rows["returned_ns"][batch.rows["thread"] == thread.id].min() for thread in process.threads]
    assert batch.complete_ns == max(firsts)
    assert batch.filled >= 1


def test_a_reader_beside_the_program_gets_each_call_once(stand_in: StandIn, tmp_path: Path) -> None:
    folder, position = tmp_path / "out", CallPosition()
    folder.mkdir(mode=0o700)
    running = stand_in.start(folder, "threads", "4", "300000", options=CALLS_ONLY)
    batches: list[CallBatch] = []
    while running.poll() is None:
        if any(watch_files(folder)):
            try:
                batches.append(read_log(folder, position)[1])
            except WatchError:
                continue
    running.communicate()
    process, last = read_log(folder, position)
    batches.append(last)
    assert running.returncode == 0
    assert sum(len(batch) + batch.missed for batch in batches) == process.calls == 4 * 300_000
    seen = np.concatenate([batch.rows["correlation"] for batch in batches])
    assert len(np.unique(seen)) == len(seen)
    assert all(batch.missed >= 0 for batch in batches)


def test_a_forked_process_has_a_log_of_its_own(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "fork")
    found = []
    for path in watch_files(tmp_path / "out"):
        with MapFile(path) as file:
            process = file.read()
            found.append((process.calls, len(file.calls(CallPosition(), process))))
    assert len(found) == len(outcome.processes)
    assert all(logged == calls for calls, logged in found)


def test_of_an_empty_log_nothing_is_read_and_nothing_missed(tmp_path: Path) -> None:
    path = tmp_path / "4321-0.watch"
    write_watch_file(path)
    with MapFile(path) as file:
        batch = file.calls(CallPosition(), file.read())
    assert (len(batch), batch.missed, dict(batch.functions)) == (0, 0, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calls": layout.BLOCK_CALLS + 1}, "calls of 257, above 256"),
        ({"slot": layout.SLOTS}, "slot of 1024, above 1023"),
        ({"first": 2**63}, "first of 9223372036854775808"),
        ({"number": 2**63}, "number of 9223372036854775808"),
    ],
)
def test_a_damaged_block_gives_a_sentence(tmp_path: Path, changes: dict[str, int], words: str) -> None:
    path = _with_block(tmp_path, changes, {})
    with MapFile(path) as file:
        process = file.read()
        with pytest.raises(WatchError, match=words):
            file.calls(CallPosition(), process)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"end_ns": 0}, "ends before it starts"),
        ({"end_ns": 2**63}, "above"),
        ({"api": layout.APIS}, "number of a function of 512"),
    ],
)
def test_a_damaged_entry_gives_a_sentence(tmp_path: Path, changes: dict[str, int], words: str) -> None:
    path = _with_block(tmp_path, {}, changes)
    with MapFile(path) as file:
        process = file.read()
        with pytest.raises(WatchError, match=words):
            file.calls(CallPosition(), process)


def _with_block(folder: Path, block: dict[str, int], entry: dict[str, int]) -> Path:
    """A file whose log has one call; ``block`` and ``entry`` replace fields."""
    path = folder / "4321-0.watch"
    write_watch_file(path)
    head = np.zeros(1, dtype_of(layout.CallBlock))
    head["number"], head["calls"], head["thread"] = 1, 1, 4321
    row = np.zeros(1, dtype_of(layout.LoggedCall))
    row["call"]["start_ns"], row["end_ns"] = SECOND, SECOND + 1
    for name, value in block.items():
        head[name] = value
    for name, value in entry.items():
        target = row if name == "end_ns" else row["call"]
        target[name] = value
    with path.open("r+b") as file:
        for offset, part in ((layout.BLOCKS_AT, head), (layout.CALLS_AT, row)):
            file.seek(offset)
            file.write(part.tobytes())
    return path
