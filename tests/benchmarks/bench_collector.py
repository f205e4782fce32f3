"""Time of the timeline's collector for each record: six probes at 1 kHz, with records that no GPU has made.

    python tests/benchmarks/bench_collector.py [--seconds 5] [--evict 256]

It needs no GPU. This process makes the probes' calls and CUPTI's records of them, in batches of 10 ms; the collector's
thread, which is that of the engine, decodes, matches and publishes them. Two parts: as it is, and with ``--evict`` MiB
written between two batches, so that nothing is left in the caches, as on a server whose other cores are busy. CUPTI's
own functions take no time here.

Prints, for each part, the mean of the first second, in which memory is new, and mean, median and 99th percentile of the
rounds after it, in ns for each record. It claims nothing: the limit of 1000 ns is that of ``bench_timeline.py``.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.fake_cupti import END_OF_BUFFER, NEWEST, FakeCupti, complete, record, request  # noqa: E402
from stallprobes import catalog  # noqa: E402
from stallprobes.catalog import Placement  # noqa: E402
from stallprobes.engine.board import Board, BoardLayout  # noqa: E402
from stallprobes.engine.gpu_work import StreamUse, submissions  # noqa: E402
from stallprobes.engine.timeline.collector import Collector  # noqa: E402
from stallprobes.model import MS, Probe  # noqa: E402
from stallprobes.native.building.compilers import of_system  # noqa: E402
from stallprobes.native.layouts.board import CALL_MEASURED, HOST_CALLS, ProbeState  # noqa: E402
from stallprobes.native.layouts.cupti import RecordKind, size_of  # noqa: E402
from stallprobes.native.library import core  # noqa: E402

SIX = ("launch", "d2d", "d2h-pinned", "h2d-pinned", "graph-launch", "d2h-pageable")
BATCH_S = 0.01
CALLS_PER_BATCH = 10
# An application's calls between two of these take ids too.
IDS_PER_CALL = 3
CALL_NS, DELAY_NS, WORK_NS = 3_000, 4_000, 1_200
KERNEL_BYTES, COPY_BYTES = size_of(RecordKind.KERNEL, NEWEST), size_of(RecordKind.COPY, NEWEST)
NEXT_RECORD = f"""
#include <stdint.h>
#include <stddef.h>
int next_record(uint8_t *buffer, size_t valid, uint8_t **record) {{
    uint8_t *next = buffer;
    if (*record)
        next = *record + (*(uint32_t *)(void *)*record == {int(RecordKind.KERNEL)} ? {KERNEL_BYTES} : {COPY_BYTES});
    if (next >= buffer + valid)
        return {END_OF_BUFFER};
    *record = next;
    return 0;
}}
"""


class CompiledCupti(FakeCupti):
    """A fake CUPTI whose functions are compiled, so that they wait for no interpreter."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        source, built = folder / "next_record.c", folder / "next_record.so"
        source.write_text(NEXT_RECORD)
        of_system()[0].run(["-O2", "-fPIC", "-shared", str(source), "-o", str(built)])
        self._library = ctypes.CDLL(str(built))

    def address(self, function: str) -> int:
        """The address of a function, 0 without it."""
        if function == "cuptiActivityGetNextRecord":
            return ctypes.cast(self._library.next_record, ctypes.c_void_p).value or 0
        return core().helper("nothing") if function == "cuptiActivityFlushAll" else 0


class Work:
    """The calls of the probes, and the records of their work, at times that nobody waited for."""

    def __init__(self, probes: Sequence[Probe], board: Board) -> None:
        self._probes, self._board = probes, board
        self._time_ns, self._id, self._iteration = 1_000_000_000, 1, 0

    def batch(self) -> bytes:
        """Make the calls of one batch, and return their records."""
        made: list[bytes] = []
        for _ in range(CALLS_PER_BATCH):
            self._iteration += 1
            for stream, probe in enumerate(self._probes):
                made += self._iterate(stream, probe)
        return b"".join(made)

    def _iterate(self, stream: int, probe: Probe) -> Iterator[bytes]:
        part = self._board[probe.name]
        kind = RecordKind.KERNEL if probe.name in ("launch", "graph-launch") else RecordKind.COPY
        for work in submissions(probe.program):
            for _ in range(work.repeat):
                began, returned = self._time_ns, self._time_ns + CALL_NS
                head = int(part.words.host_calls)
                part.host_calls[head % HOST_CALLS] = began, returned, work.op | CALL_MEASURED, self._iteration
                part.words.host_calls = head + 1
                for number in range(work.records):
                    start = returned + DELAY_NS + number * WORK_NS
                    place = {"device": 0, "context": 1, "stream": stream, "correlation": self._id}
                    yield record(kind, NEWEST, start=start, end=start + WORK_NS, **place)
                self._id += IDS_PER_CALL
                self._time_ns = returned + DELAY_NS + work.records * WORK_NS


def rounds(seconds: float, evicted: NDArray[np.int64], folder: Path) -> list[tuple[int, int]]:
    """Time in ns and number of records of each round of a collector that runs for ``seconds``."""
    probes = [replace(catalog.entries()[name].probe(Placement()), name=name, period_ns=MS) for name in SIX]
    board = Board.create(BoardLayout.of(probes))
    uses = [
        StreamUse(each.name, stream, 1, number)
        for number, each in enumerate(probes)
        for stream in dict.fromkeys(work.stream for work in submissions(each.program))
    ]
    threads = {name: 1000 + number for number, name in enumerate(SIX)}
    cupti = CompiledCupti(folder)
    collector = Collector(lambda: cupti, board, probes, uses, lambda: threads, lambda _: 0, lambda _: True)
    for each in probes:
        board[each.name].words.state = ProbeState.ENDED
    collector.switch(True)
    while not collector.settled:
        time.sleep(0.001)
    work, words = Work(probes, board), board.timeline.words
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        made = work.batch()
        evicted += 1
        before = words.decode_ns, words.collected, words.rounds
        buffer, size = request(cupti.native)
        ctypes.memmove(buffer, made, len(made))
        complete(cupti.native, buffer, size, len(made))
        # The round that is under way may miss it.
        while words.rounds < before[2] + 2:
            time.sleep(BATCH_S / 10)
        found.append((words.decode_ns - before[0], words.collected - before[1]))
    lost = [words.dropped, words.unmatched, words.unanswered, words.unknown]
    collector.stop(10)
    assert not any(lost), f"dropped, unmatched, unanswered and unknown: {lost}"
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each part")
    parser.add_argument("--evict", type=int, default=256, metavar="MIB", help="memory to write between two batches")
    options = parser.parse_args()
    for name, mib in (("as it is", 0), (f"{options.evict} MiB written", options.evict)):
        with tempfile.TemporaryDirectory() as folder:
            found = np.array(rounds(options.seconds, np.ones(mib << 17, dtype=np.int64), Path(folder)))
        first = round(len(found) / options.seconds)
        each = found[first:, 0] / found[first:, 1]
        new, later = (part[:, 0].sum() / part[:, 1].sum() for part in (found[:first], found[first:]))
        print(
            f"{name:16} {found[0, 1]} records a round, {len(found)} rounds: first second {new:.0f}, then"
            f" mean {later:.0f}, median {np.median(each):.0f}, p99 {np.percentile(each, 99):.0f} ns a record"
        )


if __name__ == "__main__":
    main()
