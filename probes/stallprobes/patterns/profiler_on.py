"""Calls of a process that profiles itself with CUPTI, during the recording and after its end."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

# Victims in each variant of this pattern.
_VICTIMS = (probe("launch"), probe("launch-series"), probe("d2d"))


PATTERN = Pattern(
    name="profiler-on",
    title="A profiler in the process makes launches slower, also after the profile has ended",
    see="A thread profiles its own process with CUPTI, as torch.profiler does: it records kernels, copies, memsets and "
    "driver calls. Three more threads make the calls that are measured: a launch each millisecond, 10 launches one "
    "after the other, and a copy within the GPU. On two H200 profiles of 20 ms stall calls: a launch takes 234 and "
    "412 µs at p99 in place of 21 and 23 µs, a copy 317 and 412 µs in place of 22 and 28 µs, and while CUPTI attaches "
    "itself all calls wait 5 to 15 ms. While a profile records, launches one after the other take 5.3 and 5.2 µs at "
    "p50 in place of 3.4 and 3.6 µs. In the program of the remedy a launch takes 3.4 µs after a profile, and 2.8 µs "
    "before it and after cuptiFinalize.",
    why="CUPTI attaches itself to the process with the first call of its API, which takes 7 to 14 ms on an H200, and "
    "meanwhile no call submits work. In many profiles the first call of a thread takes 0.2 to 0.4 ms: in that call "
    "CUPTI requests a buffer for the thread's records. While a profile records, CUPTI writes records within each "
    "driver call. When the profile has ended CUPTI stays attached, and calls still pass through it. torch.profiler "
    "(PyTorch 2.11) does not detach it, since the next profile needs it again.",
    remedy="Make one longer profile in place of many short ones, and detach CUPTI after the last one: "
    "TEARDOWN_CUPTI=1 in the environment makes torch.profiler call cuptiFinalize at the end of each profile. Try it "
    "before you rely on it where CUDA graphs are launched: on an H200 (driver 580.159.04, CUPTI 13.5) cuptiFinalize by "
    "another thread lost the context with error 719 while graph launches were in flight.",
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
            expect="Launches one after the other take 1.4 to 1.6 times as long at p50 (H200). Twice in a second "
            "all calls wait 5 to 15 ms: each profile begins with attaching CUPTI.",
            why="Nearly every call is recorded.",
            remedy="Profile few steps, and record only the kinds that are needed.",
        ),
        variant(
            "sessions",
            Kind.STALL,
            "profiles of 20 ms, one each 40 ms",
            (*_VICTIMS, probe("profiler-sessions")),
            expect="At p99 launches and copies take more than 10 times as long: 0.2 to 0.4 ms.",
            why="The first call of a thread in a profile takes that long, since CUPTI requests a buffer in it; on H200 "
            "it was so in 24 of 48 profiles. Half of the calls are recorded, the others pass through CUPTI, which is "
            "attached.",
            remedy="Make one longer profile in place of many short ones.",
        ),
        variant(
            "ended",
            Kind.CONTROL,
            "after a profile: CUPTI records nothing and is still attached",
            (*_VICTIMS, probe("profiler-ended")),
            expect="Launches one after the other take up to 1.2 times as long at p50 (H200), 0.3 to 0.7 µs more.",
            why="A profile of 5 ms each 0.4 s attaches CUPTI. The calls after it pass through it.",
        ),
        variant(
            "detached",
            Kind.REMEDY,
            "after a profile and cuptiFinalize",
            (*_VICTIMS, probe("profiler-detached")),
            expect="Launches and copies take as long as without a profiler, but for those that wait 5 to 15 ms while "
            "CUPTI is attached, twice in a second.",
            why="cuptiFinalize detaches CUPTI after each profile of 5 ms. No graph is launched here: beside graph "
            "launches in flight it loses the context.",
            remedy="This is the remedy: TEARDOWN_CUPTI=1 for torch.profiler, where the program launches no graphs.",
        ),
    ),
)
