"""Calls of a process that profiles itself with CUPTI, while it records and after it has ended."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

_VICTIMS = (probe("launch"), probe("launch-series"), probe("d2d"))


PATTERN = Pattern(
    name="profiler-on",
    title="A profiler in the process makes launches slower, also after the profile has ended",
    see="A thread profiles its own process with CUPTI, as torch.profiler does: it records kernels, copies, memsets and "
    "driver calls. Three more threads make the calls that are measured: a launch each millisecond, 10 launches one "
    "after the other, and a copy within the GPU. In a C program with a launch each 20 µs on an H200, a launch took 2.9 "
    "µs at p50 before the first profile, 3.8 µs while kernels were recorded, 4.4 µs with copies, 5.3 µs with driver "
    "calls and all other kinds, 0.3 to 0.6 µs more than before after the profile, and 2.8 to 2.9 µs after "
    "cuptiFinalize. That is no stall: nothing waits, each call takes longer.",
    why="CUPTI intercepts the driver calls of its process, and writes records within each of them while a profile "
    "records. When the profile has ended CUPTI stays attached, and calls still pass through it. torch.profiler does "
    "not detach it, since the next profile needs it again.",
    remedy="End profiles, and detach CUPTI after the last one: TEARDOWN_CUPTI=1 in the environment makes "
    "torch.profiler call cuptiFinalize at the end of each profile. Not in a program that launches CUDA graphs: on an "
    "H200 (driver 580.159.04) cuptiFinalize while graph launches are in flight loses the context with error 719.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of PyTorch (pytorch/pytorch #144455): torch.profiler continues to slow the program after profiling "
    "has ended, training by 10 to 20 %, because Kineto does not call cuptiFinalize unless TEARDOWN_CUPTI=1 is set.",
    variants=(
        variant(
            "never",
            Kind.CONTROL,
            "no profiler",
            _VICTIMS,
            expect="Launches and copies take microseconds.",
            why="CUPTI is not attached to the process.",
        ),
        variant(
            "tracing",
            Kind.CONTROL,
            "profiles of 0.4 s, one after the other",
            (*_VICTIMS, probe("profiler")),
            expect="Launches and copies take 1 to 4 µs longer. Nothing waits.",
            why="Nearly every call is recorded.",
            remedy="Profile few steps, and record only the kinds that are needed.",
        ),
        variant(
            "sessions",
            Kind.CONTROL,
            "profiles of 20 ms, one each 40 ms",
            (*_VICTIMS, probe("profiler-sessions")),
            expect="Half of the calls take as long as in tracing, the others as long as in ended.",
            why="Half of the calls are recorded. The others pass through CUPTI, which is attached.",
            remedy="Profile few steps, and record only the kinds that are needed.",
        ),
        variant(
            "ended",
            Kind.CONTROL,
            "after a profile: CUPTI records nothing and is still attached",
            (*_VICTIMS, probe("profiler-ended")),
            expect="Launches and copies take some tenths of a microsecond longer.",
            why="A profile of 5 ms each 0.4 s attaches CUPTI. The calls after it pass through it.",
        ),
        variant(
            "detached",
            Kind.REMEDY,
            "after a profile and cuptiFinalize",
            (*_VICTIMS, probe("profiler-detached")),
            expect="Launches and copies take as long as without a profiler.",
            why="cuptiFinalize detaches CUPTI after each profile of 5 ms. No graph is launched here: beside graph "
            "launches in flight it loses the context.",
            remedy="This is the remedy: TEARDOWN_CUPTI=1 for torch.profiler, where the program launches no graphs.",
        ),
    ),
)
