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
    "the other one records an event. Calls of these two that meet a burst take longer the more threads launch, "
    "although no stream waits for another.",
    why="Each call that submits work holds a lock of its context in the driver for most of its time, whichever stream "
    "it uses. So the calls of all threads of a context run one after the other, and each thread waits for those ahead "
    "of it. The time on the GPU stays the same.",
    remedy="Submit fewer calls: one launch of a graph in place of many kernels. Or let one thread launch on all "
    "streams, so that no thread waits for another.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of pixel track reconstruction with several threads (cms-patatrack/pixeltrack-standalone #218: an "
    "average of 22 µs in cudaLaunchKernel and 23 µs in cudaEventRecord, at most 2.5 and 6.5 ms) and of TensorRT on a "
    "Jetson AGX Orin with two threads (NVIDIA/TensorRT #3351: they wait in pthread_mutex_lock, called by libcuda). "
    "What an H200 shows is not recorded yet.",
    variants=(
        variant(
            "x1",
            Kind.CONTROL,
            "one thread launches",
            (*_VICTIMS, *several("launch-burst", 1)),
            expect="Most launches and records take as long as without it; those that meet a burst wait for one call.",
            why="One other thread holds the lock for a part of the time only.",
        ),
        variant(
            "x4",
            Kind.CONTROL,
            "4 threads launch",
            (*_VICTIMS, *several("launch-burst", 4)),
            expect="The slowest launches and records wait for one call of each other thread.",
            why="Four threads hold the lock for a small part of the time, and few calls meet them.",
        ),
        variant(
            "x16",
            Kind.STALL,
            "16 threads launch",
            (*_VICTIMS, *several("launch-burst", 16)),
            expect="Launches and records that meet the bursts wait for the calls of most other threads: the tail grows "
            "to many times the baseline, the median does not.",
        ),
        variant(
            "records-x16",
            Kind.CONTROL,
            "16 threads record events",
            (*_VICTIMS, *several("record-burst", 16)),
            expect="A launch waits behind records as behind launches, but for less time, since a record is a shorter "
            "call.",
            why="An event record submits work to a stream like a launch and takes the same lock.",
            remedy="Record an event only where another stream or thread waits for it.",
        ),
        variant(
            "graphs-x16",
            Kind.REMEDY,
            "16 threads launch graphs",
            (*_VICTIMS, *several("graph-burst", 16)),
            expect="Launches and records take as long as without the bursts.",
            why="One cuGraphLaunch takes the lock once for 64 kernels.",
            remedy="This is the first remedy.",
        ),
        variant(
            "one-thread",
            Kind.REMEDY,
            "one thread launches on 16 streams",
            (*_VICTIMS, probe("launch-all")),
            expect="A launch waits for one call of the other thread at most.",
            why="The same number of kernels is launched, but only one other thread takes the lock.",
            remedy="This is the second remedy.",
        ),
    ),
)
