"""Samples of threads in a made /proc: their times, what they sleep for, and child processes."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factories.pythons import VERSIONS, python_of
from factories.stand_in import SOURCES, StandIn
from factories.waiting import wait_until
from factories.watch_calls import LAUNCH, process, thread
from stallprobes.watch.division.cpu_time import CHILDREN, COLLECTOR
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.reading.source import FolderSource
from stallprobes.watch.thread_samples import _MOST_READ, MOST_SAMPLES, Sampler, ThreadSamples

PID, CHILD, GRANDCHILD = 100, 7, 8
MS = 1_000_000
ALL = (0, 10_000_000_000)


def write(proc: Path, pid: int, place: str, cpu_ns: int, delay_ns: int = 0, children: tuple[int, ...] = ()) -> None:
    """A process of one thread, which sleeps in a function of the kernel."""
    for folder in (proc / str(pid), proc / str(pid) / "task" / str(pid)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{cpu_ns} {delay_ns} 3\n")
        (folder / "stat").write_text(f"{pid} (a b) S 1 1")
        (folder / "wchan").write_text(place)
        (folder / "children").write_text(" ".join(map(str, children)))


def look_at(samples: ThreadSamples, source: FolderSource, now: int) -> None:
    """A look at the process."""
    samples.look(process(thread(PID)), source, lambda: now)


@pytest.mark.parametrize(
    ("place", "slept"),
    [
        ("hrtimer_nanosleep", [10, 0, 0, 0, 0]),
        ("do_wait", [0, 10, 0, 0, 0]),
        ("anon_pipe_read", [0, 0, 10, 0, 0]),
        ("poll_schedule_timeout.constprop.0", [0, 0, 10, 0, 0]),
        ("futex_wait_queue", [0, 0, 0, 10, 0]),
        ("futex_do_wait", [0, 0, 0, 10, 0]),
        ("", [0, 0, 0, 0, 0]),
    ],
)
def test_a_sleep_counts_for_what_it_waits_for(tmp_path: Path, place: str, slept: list[int]) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    for now, cpu in ((1000, 5), (1010, 6)):
        write(tmp_path, PID, place, cpu, 2)
        look_at(samples, source, now)
    assert samples.arrays()[PID].tolist() == [[1000, 2, 5, 0, 0, 0, 0, 0], [1010, 2, 6, *slept]]


def test_a_wait_for_a_word_of_the_interpreter_is_one_for_its_lock(tmp_path: Path) -> None:
    futex = {"x86_64": 202, "aarch64": 98}[platform.machine()]
    for address, slept in ((0x5000, 4), (0x4FFF, 3), (0x5100, 3), (None, 3)):
        source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
        for now in (1000, 1010):
            write(tmp_path, PID, "futex_do_wait", 5)
            path = tmp_path / str(PID) / "task" / str(PID) / "syscall"
            path.write_text("running\n" if address is None else f"{futex} {address:#x} 0x189 0x0\n")
            samples.look(process(thread(PID)).changed(interpreter=(0x5000, 0x100)), source, lambda: now)  # noqa: B023
        assert samples.arrays()[PID][1, 3:].tolist() == [10 if place == slept else 0 for place in range(5)]


def readable(path: Path) -> bool:
    """Whether a file can be read."""
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="this Python has no global lock")
def test_a_thread_beside_one_that_computes_in_python_waits_for_its_lock(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    words = [sys.executable, str(SOURCES.parent / "slow_steps.py"), str(stand_in.folder / "libcuda.so.1"), "contended"]
    with subprocess.Popen([*words, "1000000"], env=stand_in.environment(folder)) as program:
        try:
            if not readable(Path(f"/proc/{program.pid}/syscall")):
                pytest.skip("the kernel hides the system calls of other processes")
            analysis, samples = FolderAnalysis(folder), ThreadSamples()

            def waits() -> bool:
                analysis.poll()
                for watched in analysis.processes:
                    assert watched.interpreter[1] > 0
                    samples.look(watched, FolderSource(folder))
                return bool(samples.arrays().get(program.pid, np.zeros((1, 8)))[-1, 7])

            wait_until(waits, "the main thread waits for the lock")
        finally:
            program.kill()


# Prints where its interpreter is, makes cyclic garbage, and collects it for half of the time.
COLLECTING = """\
import ctypes, gc, sys, time
print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")), flush=True)
kept = [[number] for number in range(200_000)]
gc.disable()
while True:
    begin = time.perf_counter()
    gc.collect()
    if sys.argv[1] == "half":
        time.sleep(time.perf_counter() - begin)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_python_that_collects_garbage_is_seen_to(tmp_path: Path, version: str) -> None:
    words = [python_of(version), "-c", COLLECTING, "half"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            runtime = int(program.stdout.readline())
            if not readable(Path(f"/proc/{program.pid}/syscall")):
                pytest.skip("the kernel hides the memory of other processes")
            samples = ThreadSamples()
            watched = process(replace(thread(program.pid), ended_ns=None)).changed(
                pid=program.pid, interpreter=(runtime, 1 << 20)
            )

            def is_seen_both_ways() -> bool:
                samples.look(watched, FolderSource(tmp_path))
                rows = samples.arrays()[COLLECTOR]
                return bool(10 * MS < rows[-1, 2] < rows[-1, 0] - rows[0, 0] - 10 * MS)

            wait_until(is_seen_both_ways, "samples with a collection, and without one")
        finally:
            program.kill()


@pytest.mark.parametrize(
    "runtime", [(0, 0), (0x5000, 0x100), (0x5000, 1 << 40)], ids=["none", "not there", "too large"]
)
def test_a_process_without_a_known_collector_has_no_samples_of_one(tmp_path: Path, runtime: tuple[int, int]) -> None:
    samples = ThreadSamples()
    write(tmp_path, PID, "", 5)
    (tmp_path / str(PID) / "mem").write_bytes(bytes(0x6000))
    samples.look(process(thread(PID)).changed(interpreter=runtime), FolderSource(tmp_path, tmp_path))
    assert COLLECTOR not in samples.arrays()


def test_the_busiest_child_counts_and_so_do_children_of_children(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    for now, child, grandchild in ((1000, 0, 0), (1010, 2, 9), (1020, 9, 10)):
        write(tmp_path, PID, "do_wait", 5, children=(CHILD,))
        write(tmp_path, CHILD, "", child, children=(GRANDCHILD, 999))
        write(tmp_path, GRANDCHILD, "", grandchild)
        look_at(samples, source, now)
    assert samples.arrays()[CHILDREN][:, 2].tolist() == [0, 9, 16]


def test_children_of_one_name_have_the_time_of_the_busiest(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    workers = (11, 12, 13)
    for now in (1000, 1100, 1200):
        write(tmp_path, PID, "do_wait", 5, children=workers if now > 1000 else workers[:2])
        for number, worker in enumerate(workers):
            write(tmp_path, worker, "", (now - 1000) * (number + 1) // 4)
            (tmp_path / str(worker) / "comm").write_text("ptxas\x1b\n" if worker == 13 else "worker\n")
        look_at(samples, source, now)
    # The last one began between two looks.
    found = {child.name: (child.most, child.busy) for child in samples.children(*ALL)}
    assert found == {"worker": (2, 0.5), "ptxas\N{REPLACEMENT CHARACTER}": (1, 0.75)}


def test_threads_without_calls_have_the_time_of_the_busiest_by_name(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    for second in (1, 2, 3):
        write(tmp_path, PID, "futex_do_wait", 5)
        for number, name in enumerate(("prefetch", "prefetch", "stallscope-read"), 1):
            folder = tmp_path / str(PID) / "task" / str(1000 + number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"{second * number * 250_000_000} 0 1\n")
            (folder / "comm").write_text(f"{name}\n")
        look_at(samples, source, second * 1_000_000_000)
        # They are looked at once a second.
        look_at(samples, source, second * 1_000_000_000 + 1)
    assert [(other.name, other.most, other.busy) for other in samples.others(*ALL)] == [("prefetch", 2, 0.5)]


def test_children_of_the_start_up_are_not_those_of_the_steady_state(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    compiler, worker = 11, 12
    write(tmp_path, compiler, "", 0)
    for now in (1000, 1100, 1200, 1300):
        write(tmp_path, PID, "do_wait", 5, children=(compiler, worker) if now < 1200 else (worker,))
        write(tmp_path, compiler, "", now - 1000)
        write(tmp_path, worker, "", max(now - 1100, 0) // 2)
        for child, name in ((compiler, "ptxas"), (worker, "worker")):
            (tmp_path / str(child) / "comm").write_text(f"{name}\n")
        look_at(samples, source, now)
    assert [child.name for child in samples.children(*ALL)] == ["ptxas", "worker"]
    assert [(child.name, child.busy) for child in samples.children(1100, 1300)] == [("worker", 0.5)]


def test_of_very_many_threads_those_with_most_calls_are_read(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    count = _MOST_READ + 40
    for number in range(1, count + 1):
        write(tmp_path, number, "", 5)
        (tmp_path / str(PID) / "task" / str(number)).mkdir(parents=True, exist_ok=True)
        (tmp_path / str(PID) / "task" / str(number) / "schedstat").write_text("5 2 3")
    every = [thread(number, fast_us={LAUNCH: [1.0] * (1 + (number > 40))}) for number in range(1, count + 1)]
    samples.look(process(*every), source, lambda: 1000)
    read = {key for key in samples.arrays() if key > 0}
    assert read == set(range(41, count + 1))


def test_a_thread_that_is_not_known_has_no_samples(tmp_path: Path) -> None:
    samples = ThreadSamples()
    samples.look(process(thread(PID)), FolderSource(tmp_path, tmp_path))
    assert PID not in samples.arrays()


def test_only_the_latest_samples_are_kept_in_their_order(tmp_path: Path) -> None:
    source, samples = FolderSource(tmp_path, tmp_path), ThreadSamples()
    write(tmp_path, PID, "hrtimer_nanosleep", 1)
    look_at(samples, source, 1)
    for now in range(2, MOST_SAMPLES + 4):
        samples.sample(lambda: now)  # noqa: B023
    times = samples.arrays()[PID][:, 0].tolist()
    assert times == list(range(4, MOST_SAMPLES + 4))


# "0": it does not sleep, as a thread that has too few CPUs, at each look; or the kernel hides it.
@pytest.mark.parametrize("place", ["hrtimer_nanosleep", "0"])
def test_samples_are_taken_between_readings_until_these_end(tmp_path: Path, place: str) -> None:
    source, samples, sampler = FolderSource(tmp_path, tmp_path), ThreadSamples(), Sampler()
    write(tmp_path, PID, place, 1)
    samples.look(process(thread(PID)), source)
    assert not sampler.take()
    sampler.follow([samples])
    wait_until(lambda: len(samples.arrays()[PID]) > 2, "samples")
    sampler.follow([])
    assert not sampler.take()
