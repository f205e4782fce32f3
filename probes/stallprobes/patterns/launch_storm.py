"""Threads that launch at the same time on streams of their own, and delay each other."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, several, variant

# Victims in each variant of this pattern.
_VICTIMS = (probe("launch-batch"), probe("launch"), probe("event"))


PATTERN = Pattern(
    name="launch-storm",
    title="Threads that launch at the same time on streams of their own delay each other",
    see="2, 4 or 16 threads launch 64 small kernels each, every 41 ms, all at the same time and each thread on a "
    "stream of its own. The launches of one of the threads are measured. On an H200 they take 3.1 to 4.3 µs at p50 "
    "while the other threads rest. Beside 15 threads they take 9 to 12 µs at p50, 32 to 39 at p90 and 130 to 170 at "
    "p99, and the 64 launches 1.1 to 1.3 ms in place of 0.24 to 0.33, although no stream waits for another. Two more "
    "threads launch a kernel or record an event each millisecond. They meet few of the launches and keep their time.",
    why="Each call that submits work holds a lock of its context in the driver for a part of its time, whichever "
    "stream it uses. So the calls of all threads of a context pass one after the other, in no order, and each thread "
    "waits for some of the others. What a call writes is moreover in the cache of the core that submitted last: a "
    "launch after one of another thread takes 1 µs longer. The time on the GPU stays the same.",
    remedy="Submit fewer calls: one launch of a graph in place of many kernels. Or let one thread launch on all "
    "streams, so that no thread waits for another.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of pixel track reconstruction with several threads (cms-patatrack/pixeltrack-standalone #218: an "
    "average of 22 µs in cudaLaunchKernel and 23 µs in cudaEventRecord, at most 2.5 and 6.5 ms) and of TensorRT on a "
    "Jetson AGX Orin with two threads (NVIDIA/TensorRT #3351: they wait in pthread_mutex_lock, called by libcuda). On "
    "an H200, driver 580.159.04, 16 threads take an average of 18 µs for each launch.",
    variants=(
        variant(
            "x2",
            Kind.CONTROL,
            "2 threads launch",
            (*_VICTIMS, probe("launch-burst")),
            expect="The launches take up to 1 µs longer than those of one thread: 3.7 to 4.6 µs in place of 3.3 to 4.3 "
            "on an H200. Launches and records each millisecond take as long as without them.",
            why="One other thread holds the lock for a small part of the time. Mostly the other core's cache counts.",
        ),
        variant(
            "x4",
            Kind.CONTROL,
            "4 threads launch",
            (*_VICTIMS, *several("launch-burst", 3)),
            expect="The launches take 4.7 to 5.8 µs at p50 on an H200, and the 64 together 0.37 to 0.47 ms in place of "
            "0.28 to 0.32. That is slower and no stall.",
            why="Three other threads hold the lock for a part of the time.",
        ),
        variant(
            "x16",
            Kind.STALL,
            "16 threads launch",
            (*_VICTIMS, *several("launch-burst", 15)),
            expect="The launches take 9 to 12 µs at p50 and 130 to 170 at p99 on an H200, and the 64 together 1.1 to "
            "1.3 ms in place of 0.24 to 0.31.",
            why="The lock is always taken. A thread waits for any number of the 15 others. Launches and records each "
            "millisecond meet few of them.",
        ),
        variant(
            "records-x16",
            Kind.CONTROL,
            "one thread launches, 15 record events",
            (*_VICTIMS, *several("record-burst", 15)),
            expect="The launches take at most 0.7 µs longer.",
            why="The records of 15 threads wait for each other, 15 to 22 µs at p90 on an H200. Launches hardly wait "
            "for them.",
            remedy="Record an event only where another stream or thread waits for it.",
        ),
        variant(
            "graphs-x16",
            Kind.REMEDY,
            "one thread launches, 15 launch graphs",
            (*_VICTIMS, *several("graph-burst", 15)),
            expect="The launches take 4 µs at p50 on an H200, and the 64 together 0.34 to 0.4 ms. The other threads "
            "submit 64 kernels with one call of 50 µs.",
            why="One cuGraphLaunch takes the lock once for 64 kernels.",
            remedy="This is the first remedy.",
        ),
        variant(
            "one-thread",
            Kind.REMEDY,
            "one thread launches on 16 streams",
            (*_VICTIMS, probe("launch-all")),
            expect="Launches take 3.3 to 3.8 µs in the one thread on an H200, and 4.1 to 4.5 in the thread that is "
            "measured beside it.",
            why="The same number of kernels is launched, but only one other thread takes the lock.",
            remedy="This is the second remedy.",
        ),
    ),
)
