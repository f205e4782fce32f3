"""Sections of the monitor's help: (title, text)."""

from __future__ import annotations

SECTIONS: tuple[tuple[str, str], ...] = (
    (
        "States",
        "quiet: as fast as the baseline. slower: at least 1.5 times the baseline and beyond its spread, for 1.2 s, "
        "while an aggressor runs. STALLED: at least 3 times. STARVED: fewer than 3 calls returned in 0.5 s. "
        "A range such as 4.5–12.7 µs: unsteady, the machine itself varies by as much with no aggressor running. "
        "host noise: the host control, which makes no CUDA call, was slower too. "
        "baseline: the baseline is being measured. waiting: switched on, starts when the baseline is complete. "
        "1/3 calls: of a probe with a long period, how many of the three calls that a verdict needs were made; "
        "base 7/20: how many of the 20 that its baseline needs.",
    ),
    (
        "Phases",
        "call: host time inside the driver call. wait: from its return until the host sees the work complete. gpu: "
        "time on the GPU, measured with event pairs or by the timeline. due: from when the call was scheduled, so it "
        "includes the delay that earlier calls caused. Only the timeline measures start, from the call's return until "
        "the GPU starts the work, and before return, from the GPU's start until the return where the GPU starts first: "
        "that is never a stall. The timeline makes calls 1 to 10 µs longer, so it has baselines of its own.",
    ),
    (
        "Values",
        "Of the last second, or of the last four calls where the period is longer than 0.25 s. in flight: the age of a "
        "call that has not returned. × base: p50 divided by the baseline's p50. The baseline is extended by every "
        "second without an aggressor, and measured anew on its key. p99.9 needs 1000 calls.",
    ),
    (
        "Plots",
        "All axes are logarithmic and fixed, from 100 ns to 10 s. ░ is the baseline, full blocks are live values, ◆ is "
        "a call in flight. Histogram heights are square roots of counts, so a single slow call is visible. In the heat "
        "map ░ is a few calls per second, █ a thousand.",
    ),
    (
        "Blame",
        "An experiment with the aggressors that are on: all off, all on, each alone, each off, in several rounds. "
        "necessary: the stall ends without it. sufficient: it alone makes the stall. makes it longer: neither, but a "
        "tenth of the delay or more is its own. not involved: none of these. The share is its part of the delay with a "
        "95 % interval. The log and the baselines ignore what happens meanwhile.",
    ),
    (
        "GPU %",
        "NVML's utilization: the share of its window in which any kernel ran. One spinning thread reads 100 %.",
    ),
)
