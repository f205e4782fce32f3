"""A host function that lasts beside launches, copies and other host functions."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

# Victims in each variant of this pattern.
_VICTIMS = (probe("callback"), probe("launch"), probe("d2h-pinned"))


PATTERN = Pattern(
    name="host-callback",
    title="A long host function delays the host functions of all other streams",
    see="A host function behind a kernel runs for 1 ms, for 10 ms, or until another thread releases a mutex. Three "
    "more threads, each with a stream of its own, make the calls that are measured: a launch, a copy to pinned "
    "memory, and a host function that returns at once. On an H200 the short host function waits for the long one: 9.5 "
    "ms in place of 55 µs beside one of 10 ms. Launches and copies keep their time.",
    why="The driver calls host functions on a thread of its own, on an H200 one at a time, also those of independent "
    "streams, as CUDA's documentation allows. cudaStreamAddCallback, the older call, was also reported to hold the "
    "driver's mutex while the function runs, which stops the launches of all threads. If a thread that holds a mutex "
    "of its own makes such a launch, and the host function waits for that mutex, neither returns: a deadlock. On an "
    "H200 a launch beside a host function that waited returned at once.",
    remedy="Keep host functions short, and never let one wait for a lock that a thread can hold in a CUDA call. Let it "
    "wake a thread that does the work, or let that thread wait for an event in place of a host function.",
    symptom=Symptom.HANG,
    reported="Users of FBGEMM (pytorch/FBGEMM #5462: callbacks block launches of NCCL kernels on other streams), NCCL "
    "(NVIDIA/nccl #1742: host functions serialize the kernels of other streams) and LMCache (LMCache/LMCache #2952: a "
    "host function in Python deadlocks with a thread that holds the interpreter lock in a CUDA call).",
    variants=(
        variant(
            "alone",
            Kind.CONTROL,
            "a host function that returns at once, and no other",
            _VICTIMS,
            expect="Launches, copies and short host functions do not delay each other.",
            why="Each host function returns at once.",
        ),
        variant(
            "busy-1ms",
            Kind.STALL,
            "a host function of 1 ms",
            (*_VICTIMS, probe("callback-1ms")),
            expect="The short host function waits for up to 1 ms. Launches and copies are not delayed.",
        ),
        variant(
            "busy-10ms",
            Kind.STALL,
            "a host function of 10 ms",
            (*_VICTIMS, probe("callback-10ms")),
            expect="The short host function waits for up to 10 ms. Launches and copies are not delayed.",
        ),
        variant(
            "mutex",
            Kind.STALL,
            "a host function that waits for a mutex, and a thread that launches with the mutex",
            (*_VICTIMS, probe("callback-mutex"), probe("mutex-holder")),
            expect="The short host function waits for as long as the other thread holds the mutex, up to 5 ms. If "
            "the driver stops launches while a host function runs, all of them hang until a watchdog ends the host "
            "function after 250 ms.",
        ),
        variant(
            "short",
            Kind.REMEDY,
            "a short host function; the thread does the work",
            (*_VICTIMS, probe("callback-short")),
            expect="No call takes longer.",
            why="The driver's thread is free again after microseconds.",
            remedy="This is the first remedy.",
        ),
        variant(
            "event",
            Kind.REMEDY,
            "an event in place of the host function; the thread does the work",
            (*_VICTIMS, probe("event-thread")),
            expect="No call takes longer.",
            why="The thread of the program waits for the event, and the driver's thread has nothing to call.",
            remedy="This is the second remedy.",
        ),
    ),
)
