"""Threads that launch at the same time on streams of their own, and delay each other."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, several, variant

_VICTIMS = (probe("launch"), probe("event"))


PATTERN = Pattern(
    name="launch-storm",
    title="Threads that launch at the same time on streams of their own delay each other",
    see="One, 4 or 16 threads each launch 64 small kernels every 41 ms, all at the same time and each thread on a "
    "stream of its own. Two more threads make the calls that are measured: one launches a kernel each millisecond, "
    "the other one records an event. On an H200 the launches of the 16 threads take 5 to 7 µs at p50 in place of 3, "
    "and "
    "up to 0.6 ms, although no stream waits for another. The two measured threads meet few bursts and keep their time.",
    why="Each call that submits work holds a lock of its context in the driver for a part of its time, whichever "
    "stream "
    "it uses. So the calls of all threads of a context pass one after the other, and each thread waits for those ahead "
    "of it. The time on the GPU stays the same.",
    remedy="Submit fewer calls: one launch of a graph in place of many kernels. Or let one thread launch on all "
    "streams, so that no thread waits for another.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of pixel track reconstruction with several threads (cms-patatrack/pixeltrack-standalone #218: an "
    "average of 22 µs in cudaLaunchKernel and 23 µs in cudaEventRecord, at most 2.5 and 6.5 ms) and of TensorRT on a "
    "Jetson AGX Orin with two threads (NVIDIA/TensorRT #3351: they wait in pthread_mutex_lock, called by libcuda). "
    "With the driver of an H200, 580.159.04, the lock is held for less than a microsecond.",
    variants=(
        variant(
            "x1",
            Kind.CONTROL,
            "one thread launches",
            (*_VICTIMS, *several("launch-burst", 1)),
            expect="Launches and records take as long as without it.",
            why="One other thread holds the lock for a small part of the time.",
        ),
        variant(
            "x4",
            Kind.CONTROL,
            "4 threads launch",
            (*_VICTIMS, *several("launch-burst", 4)),
            expect="Launches and records take as long as without them. The 4 threads' own launches take 3.4 to 3.7 µs "
            "on an H200, where those of one thread take 2.7 to 3.2 µs.",
            why="Four threads hold the lock for a small part of the time, and few calls meet them.",
        ),
        variant(
            "x16",
            Kind.CONTROL,
            "16 threads launch",
            (*_VICTIMS, *several("launch-burst", 16)),
            expect="The 16 threads' own launches take twice as long as those of one thread, and some 0.2 to 0.6 ms. A "
            "launch each millisecond takes up to 29 µs at p99 in place of 19 µs on an H200, which is no stall.",
            why="A thread waits for those of the 15 others that are ahead of it, for less than a microsecond each.",
        ),
        variant(
            "records-x16",
            Kind.CONTROL,
            "16 threads record events",
            (*_VICTIMS, *several("record-burst", 16)),
            expect="Launches and records take as long as without them.",
            why="An event record takes the same lock as a launch, and is a shorter call: 0.2 µs in a series.",
            remedy="Record an event only where another stream or thread waits for it.",
        ),
        variant(
            "graphs-x16",
            Kind.REMEDY,
            "16 threads launch graphs",
            (*_VICTIMS, *several("graph-burst", 16)),
            expect="Launches and records take as long as without the bursts, and 64 kernels take one call of 15 to 17 "
            "µs "
            "on an H200.",
            why="One cuGraphLaunch takes the lock once for 64 kernels.",
            remedy="This is the first remedy.",
        ),
        variant(
            "one-thread",
            Kind.REMEDY,
            "one thread launches on 16 streams",
            (*_VICTIMS, probe("launch-all")),
            expect="Launches and records take as long as without it, and the launches of the one thread 3 µs.",
            why="The same number of kernels is launched, but only one other thread takes the lock.",
            remedy="This is the second remedy.",
        ),
    ),
)
