"""The compiled loop against a C program: the same libc calls at the same pace, in alternating rounds.

python tests/benchmarks/bench_loop.py [--rounds N] [--seconds S]

Needs gcc, and no GPU. Each line is one setting; the figures are medians over the rounds. ``pread`` reads 64 KiB of
/dev/zero, a call of about the length of a kernel launch; ``getppid`` is as short as a call can be.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.host_resolver import libc_address
from stallprobes.engine.loop import ProbeLoop, op_rows
from stallprobes.latency.histogram import Histogram
from stallprobes.model import Channel, Op, Phase, Probe, Program, Role
from stallprobes.native.layouts.program import OpFlag

CALL = Channel(Phase.CALL)
PERIOD_NS = 200_000
NBYTES = 65_536
WARM_UP_S = 0.1

C_PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static long period, turns, warm;
static int which;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *loop(void *result) {
    int64_t *samples = result;
    char *to = malloc(NBYTES);
    int zero = open("/dev/zero", O_RDONLY);
    memset(to, 1, NBYTES);
    prctl(PR_SET_TIMERSLACK, 1);
    int64_t due = now();
    for (long i = -warm; i < turns; i++) {
        struct timespec until = {due / 1000000000LL, due % 1000000000LL};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        int64_t began, end;
        if (which == 0) {
            began = now();
            getppid();
            end = now();
        } else {
            began = now();
            ssize_t got = pread(zero, to, NBYTES, 0);
            end = now();
            if (got != NBYTES) exit(1);
        }
        if (i >= 0) samples[i] = end - began;
        do due += period; while (due < end);
    }
    return NULL;
}

int main(int argc, char **argv) {
    which = strcmp(argv[1], "getppid") != 0;
    int threads = atoi(argv[2]);
    period = atol(argv[3]);
    turns = atol(argv[4]);
    warm = atol(argv[5]);
    int64_t *samples = calloc(threads * turns, sizeof *samples);
    pthread_t ids[16];
    for (int i = 0; i < threads; i++) pthread_create(ids + i, NULL, loop, samples + i * turns);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    fwrite(samples, sizeof *samples, threads * turns, stdout);
    return 0;
}
"""


def build(folder: Path) -> Path:
    source, program = folder / "loop.c", folder / "loop"
    source.write_text(C_PROGRAM)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemExit("there is no gcc and no cc to build the C program with")
    command = [compiler, "-O2", "-pthread", f"-DNBYTES={NBYTES}", "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    return program


def by_c(program: Path, call: str, threads: int, seconds: float) -> Histogram:
    iterations, warm = (str(int(s * 1e9 / PERIOD_NS)) for s in (seconds, WARM_UP_S))
    command = [str(program), call, str(threads), str(PERIOD_NS), iterations, warm]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    return Histogram.of(np.frombuffer(output, dtype=np.int64).tolist())


def by_loop(call: str, threads: int, seconds: float) -> Histogram:
    program = Program((Op(f"libc:{call}"),), context=None)
    probes = [Probe(f"p{i}", "", Role.HOST, program, PERIOD_NS, "p") for i in range(threads)]
    board = Board.create(BoardLayout.of(probes))
    zero = os.open("/dev/zero", os.O_RDONLY)
    buffers = [np.ones(NBYTES, dtype=np.uint8) for _ in probes]
    workers = []
    for number, to in enumerate(buffers):
        rows = op_rows(1)
        arguments = [] if call == "getppid" else [zero, to.ctypes.data, NBYTES, 0]
        rows[0].function = libc_address(call)
        rows[0].arguments[: len(arguments)] = arguments
        rows[0].channel, rows[0].flags = 0, OpFlag.RETURN_IS_VALUE
        part = board[number]
        part.words.run = 1
        workers.append(threading.Thread(target=with_fine_timer, args=(ProbeLoop(board, part, rows),)))
    for worker in workers:
        worker.start()
    time.sleep(WARM_UP_S)
    before = board.snapshot()
    time.sleep(seconds)
    window = board.snapshot().minus(before)
    board.header.quit = 1
    for worker in workers:
        worker.join()
    board.close()
    os.close(zero)
    merged = Histogram.empty()
    for one in window.values():
        merged = merged.merge(one.channels[CALL])
    return merged


def with_fine_timer(runner: ProbeLoop) -> None:
    set_timer_slack = 29
    ctypes.CDLL(None).prctl(set_timer_slack, 1)
    runner()


@contextmanager
def busy_python() -> Iterator[None]:
    ended = threading.Event()

    def count() -> None:
        number = 0
        while not ended.is_set():
            for _ in range(10_000):
                number += 1

    thread = threading.Thread(target=count)
    thread.start()
    yield
    ended.set()
    thread.join()


def figures(rounds: list[Histogram]) -> list[float]:
    return [statistics.median((hist.percentile(q) or 0) for hist in rounds) for q in (50, 99, 99.9)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    print(
        f"ns; medians of {given.rounds} alternating rounds of {given.seconds:g} s, a call each {PERIOD_NS // 1000} us"
    )
    print(f"{'call':8} {'threads':>7}  {'timed by':26} {'p50':>8} {'p99':>8} {'p99.9':>8}   p50 and p99 against C")
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for call in ("getppid", "pread"):
            for threads in (1, 3):
                compare(program, call, threads, given.rounds, given.seconds)
    return 0


def compare(program: Path, call: str, threads: int, rounds: int, seconds: float) -> None:
    by: dict[str, list[Histogram]] = {"C": [], "loop": [], "C beside busy Python": [], "loop beside busy Python": []}
    for _ in range(rounds):
        by["C"].append(by_c(program, call, threads, seconds))
        by["loop"].append(by_loop(call, threads, seconds))
        with busy_python():
            # The C program beside a busy process: what a taken core alone costs, without any Python in the way.
            by["C beside busy Python"].append(by_c(program, call, threads, seconds))
            by["loop beside busy Python"].append(by_loop(call, threads, seconds))
    base = {"C": figures(by["C"]), "C beside busy Python": figures(by["C beside busy Python"])}
    for name, histograms in by.items():
        p50, p99, p999 = figures(histograms)
        line = f"{call:8} {threads:7}  {name:26} {p50:8.0f} {p99:8.0f} {p999:8.0f}"
        if name not in base:
            of = base[name.replace("loop", "C")]
            line += f"   {p50 / of[0]:.2f} {p99 / of[1]:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
