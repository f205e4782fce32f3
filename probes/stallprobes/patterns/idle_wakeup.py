"""A launch after an idle time of the GPU takes longer than one of a series."""

from __future__ import annotations

from stallprobes.catalog.host import HOST
from stallprobes.model import MS, Kind, Pattern, Symptom, Variant
from stallprobes.patterns._build import idle_probe, probe, variant

# Length (ns) of a second.
_SECOND = 1_000 * MS


def _after(name: str, idle_ns: int, title: str, kind: Kind, expect: str, why: str = "") -> Variant:
    return variant(
        name, kind, title, (idle_probe("launch", idle_ns),), expect=expect, why=why, host=idle_probe(HOST, idle_ns)
    )


PATTERN = Pattern(
    name="idle-wakeup",
    title="A launch after an idle time takes longer than a launch in a series",
    see="A launch each millisecond is the baseline. Then the same thread launches after 100 ms, 1 s and 5 s without "
    "any work on the GPU. The result names the GPU's SM clock, performance state and power for the baseline and for "
    "the idle times, as NVML shows them. The host control has the same idle times. On an H200 the call takes 34 to 44 "
    "µs in place of 4 to 6 µs, and the wait 9 to 12 µs in place of 5, while the GPU stays at 1980 MHz and P0.",
    why="Two parts add up. The call and the notice of its end are slower on the host: the driver's code and data leave "
    "the caches of the CPU, which enters idle states. On an H200 this is all: a launch that is not timed just before "
    "removes it, and kernels of another thread do not. What the host control shows as well is never blamed on the "
    "GPU. The wait is slower still where an idle GPU lowers its clocks and its power state, which it raises when work "
    "arrives.",
    remedy="Let the same thread launch an empty kernel shortly before the launch that matters. Where the GPU lowers "
    "its clocks, keep it active with a small kernel at short intervals, or lock them (nvidia-smi -lgc, as root). "
    "Persistence mode (nvidia-smi -pm 1, as root) keeps the driver loaded while no program uses the GPU, which makes "
    "the first call of the next program faster. stallscope changes neither setting.",
    symptom=Symptom.SLOW_FIRST_CALL,
    reported="Users of TensorRT on Windows: on an RTX 3070 an inference took 92 ms after 10 s without one "
    "(NVIDIA/TensorRT #2042); on an RTX 2070 Super an inference of 2 ms takes much longer after a sleep of 1 s "
    "(#2107). The answer names the GPU's clocks, which nvidia-smi can lock.",
    variants=(
        variant(
            "after-1ms",
            Kind.CONTROL,
            "a launch each millisecond",
            (probe("launch"),),
            expect="The launch takes microseconds.",
            why="The GPU is idle for less than a millisecond.",
        ),
        _after(
            "after-100ms",
            100 * MS,
            "a launch after 100 ms",
            Kind.STALL,
            "The launch call takes 40 µs on an H200: its code and data are no longer in the caches of the CPU.",
        ),
        _after(
            "after-1s",
            _SECOND,
            "a launch after 1 s",
            Kind.STALL,
            "The call takes as long as after 100 ms. Where the GPU has lowered its clocks, the wait takes longer too.",
        ),
        _after(
            "after-5s",
            5 * _SECOND,
            "a launch after 5 s, measured for 20 s",
            Kind.STALL,
            "As after 1 s; longer where the GPU lowers its clocks further. Three calls, 15 s, make a verdict.",
        ),
        variant(
            "warmed",
            Kind.REMEDY,
            "a launch after 1 s, just behind one that is not timed",
            (idle_probe("launch-warmed", _SECOND),),
            expect="The launch takes as long as in a series.",
            why="The call before it brings the driver's code and data back to the caches of the CPU.",
            remedy="This is the remedy: a launch of an empty kernel shortly before the first one that matters.",
            host=idle_probe(HOST, _SECOND),
        ),
        variant(
            "keep-alive",
            Kind.CONTROL,
            "a launch after 1 s, and a kernel of 20 µs each 10 ms on another stream",
            (idle_probe("launch", _SECOND), probe("keep-alive")),
            expect="Where an idle GPU lowers its clocks, the wait is shorter than without these kernels. On an H200 "
            "it is "
            "not. The call stays slower, since its own thread has slept.",
            why="The GPU is never idle for longer than 10 ms, so it keeps its clocks.",
            remedy="This is a remedy for a GPU that lowers its clocks, without root.",
            host=idle_probe(HOST, _SECOND),
        ),
    ),
)
