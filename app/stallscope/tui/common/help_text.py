"""Sections of the help of each screen: (title, text)."""

from __future__ import annotations

from collections.abc import Mapping

# Sections of the monitor's help: (title, text).
_MONITOR = (
    (
        "Which victim is shown",
        "Until you select a row, histogram, heat map and explanation follow the stall: they show the victim that "
        "stalls worst, after its end the one that stalled last. Another one is shown once the first has been quiet "
        "for 3 s, or when it has been clearly worse for 1 s: a more severe state, or 3 times the ratio. A selected "
        "row stays; the follow key ends the selection. From 120×40 on, the histograms of all victims are side by "
        "side, ▸ marks the one that is shown; a click selects one.",
    ),
    (
        "States",
        "quiet: as fast as the baseline. slower: at least 1.5 times the baseline and beyond its spread, for 1.2 s, "
        "while an aggressor runs. STALLED: at least 3 times. STARVED: fewer than 3 calls returned in 0.5 s. "
        "A range such as 4.5–12.7 µs: unsteady, the machine itself varies by as much with no aggressor running. "
        "host noise: the host control, which makes no CUDA call, was slower too. "
        "baseline: the baseline is being measured. waiting: switched on, starts when the baseline is complete. "
        "1/3 calls: of a probe with a long period, how many of the three calls that a verdict needs were made; "
        "base 7/20: how many of the 20 that its baseline needs. Victims of different contexts run in slots of 100 ms, "
        "so that none disturbs another.",
    ),
    (
        "Phases",
        "call: host time inside the driver call. wait: from its return until the host sees the work complete. gpu: "
        "time on the GPU, measured with event pairs or by the timeline. due: from when the call was scheduled, so it "
        "includes the delay that earlier calls caused, and is shown where it is longer than both. Only the timeline "
        "measures start, from the call's return until "
        "the GPU starts the work, and before return, from the GPU's start until the return where the GPU starts first: "
        "that is never a stall. The timeline makes calls 1 to 10 µs longer, so it has baselines of its own.",
    ),
    (
        "Values",
        "Of the last second, or of the last four calls where the period is longer than 0.25 s. in flight: the age of a "
        "call that has not returned. ×: p50 divided by the baseline's p50. The baseline is extended by every "
        "second without an aggressor, and measured anew on its key. p99.9 needs 1000 calls.",
    ),
    (
        "Plots",
        "All axes are logarithmic; that of histograms is fixed, from 100 ns to 10 s, that of the heat map "
        "widens. ░ is the baseline, full blocks are live values, ◆ is "
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
        "NVML's utilization: the share of its window, of 0.17 to 1 s, in which any kernel ran. One spinning thread "
        "reads 100 %.",
    ),
)
# Sections of the matrix screen's help: (title, text).
_MATRIX = (
    (
        "Block",
        "A line is an aggressor, a letter a victim, the worst first. X STARVED; █ ▓ ▒ ░ STALLED from ×1000, ×100, ×10, "
        "below; s slower; · quiet; - not reached; n not supported; ! invalid; ? drift. [ ] is the selected cell. In a "
        "comparison WORSE is reverse, BETTER underlined. Each cell is measured several times, in random order, and "
        "compared with its own baseline just before and after.",
    ),
    (
        "Words",
        "STARVED: fewer than 3 calls returned in 0.5 s. STALLED: at least 3 times the cell's own baseline. slower: at "
        "least 1.5 times. drift: as slow after the aggressor stopped. host noise: the machine itself was slower. "
        "invalid: measured, but not counted; the cell shows the reason.",
    ),
    (
        "Comparison",
        "WORSE and BETTER: changes beyond chance, at the false alarm rate given for the whole comparison. UNSURE: too "
        "few calls or too much noise for a decision. The ratio is new over old.",
    ),
)
# Sections of the timeline screen's help: (title, text). The sections follow the sections that explain the letters of
# the timeline's plot.
_TIMELINE = (
    (
        "Delay",
        "The arrow begins where the selected call returned and ends where the GPU started its work; its label says "
        "what the work waited for. An arrow to the left: the GPU started before the call returned. Of a wait it is "
        "the delay of its iteration's work.",
    ),
    (
        "Trigger",
        "Armed, it freezes the trace at the first call of a victim above the limit. By default each probe's limit "
        "follows its baseline: three times the p99, at least 100 µs above it, and longer than all but one in 100 000 "
        "calls. What was recorded in the last 12 s is kept. A recording that begins while the shown probe stalls "
        "freezes on the worst call of that probe.",
    ),
    (
        "Cost",
        "While the timeline is on, calls are 1 to 10 µs longer: the monitor says so, has a baseline of its own for "
        "that state, and measures it while no aggressor runs. The recording continues in other views until it is "
        "ended. On a GPU, switching it on first takes some 16 s.",
    ),
)
# Sections of the watch screen's help: (title, text).
_WATCH = (
    (
        "Rows",
        "A row is one function in one thread of the program, those that lost most time first. calls, p50, p99 and "
        "worst are those since the start, calls/s of the last second. in flight: the age of a call that has not "
        "returned. lost: the time of its slow calls beyond the median.",
    ),
    (
        "Slow calls",
        "A call is slow from --slow µs on (by default 1000). Each has a sentence about what it waited for; the cause "
        "is final 2 s after the call's end. because of: records of the call itself prove it, or it is known that such "
        "a call is slow or stalls. beside: the calls overlap in time.",
    ),
    (
        "Kernels",
        "K shows them in place of the slow calls: those of the first verdict, with most of its GPU time first. share: "
        "of the time of its kernels. regs: registers of a thread. launched at: the line of the program that launches "
        "most of them, or a graph with them.",
    ),
    (
        "Beside",
        "The digits let aggressors run beside the program, after a question: in a process of stallscope's own on its "
        "GPU, one at a time, in turns of whole steps. b shows them in place of the slow calls: the median step without "
        "and with each, their ratio and its 95 % interval from three turns on. In the strip a column is the median "
        "step of its time, and the digit above it the aggressor that ran. They end where the GPU's free memory "
        "shrinks to 4 GiB, or to a tenth of it, and with stallscope.",
    ),
    (
        "Time lost",
        "The share of a thread's time that its slow calls lost, and the causes of that time.",
    ),
    (
        "Histogram",
        "The selected row: full blocks are the last second, ░ all calls since the start, ◆ is a call in flight. The "
        "axis is logarithmic and fixed, from 100 ns to 10 s; heights are square roots of counts.",
    ),
    (
        "Timeline",
        "Shows all calls, also those in flight, the GPU work and who had the graphics engine. It opens on the last 2 "
        "s, home returns to them. freeze on stall keeps the trace of the call.",
    ),
    (
        "Output and input",
        "The program's stdout and stderr go to the pane, with --output FILE to a file; its input is empty (/dev/null). "
        "It has no terminal other than the pane. With --headless it has the terminal, as without watch.",
    ),
    (
        "End",
        "When the program ends, the screen stays. Quitting while it runs ends it as ctrl+c would, after a question, "
        "and waits for its end. ctrl+z stops the program too. The report is printed when the screen is closed.",
    ),
)
# Sections of the process screen's help: (title, text).
_PROCESSES = (
    (
        "Rows",
        "A row is one process with a compute, graphics or MPS context, by NVML's lists, about once a second; first "
        "those of GPU 0, the oldest first. Where NVML lists none, as in containers, rows are the processes that have "
        "/dev/nvidia* open, as far as you may see their files. A selected process that ends is marked ENDED.",
    ),
    (
        "Columns",
        "GPU: indexes as in nvidia-smi. type: C compute, G graphics, M client of MPS. memory: on all its GPUs. SM: "
        "NVML's share of its last sample, of at most a second, in which the SMs worked for the process; of several "
        "GPUs the mean. n/a: not stated by NVML.",
    ),
    (
        "Attaching",
        "yes: it can be attached. no: it cannot; the lines below the table say why and what to do. own: an engine of "
        "this stallscope. The process of this screen is left out: it reads NVML and has no context. Attaching from the "
        "monitor ends the monitor first, so that its probes do not disturb the process.",
    ),
)
# Sections of the patterns' help: (title, text).
_PATTERNS = (
    (
        "Lines",
        "Below the name of each pattern, a stall that users reported, are its variants. stall: the stall itself. "
        "control: the same calls without its cause. remedy: the same work arranged so that nothing waits. The last "
        "lines are the probes of the catalog, victims and aggressors. The details are those of the selected line.",
    ),
    (
        "Loading",
        "A variant replaces the current probes: their baseline is measured first, then the aggressors start. A probe "
        "is added to the current ones.",
    ),
    (
        "Finding",
        "The list has the lines with all words that you type, of names or titles. The arrow keys select a line and "
        "enter loads it meanwhile; the way back shows all lines again.",
    ),
)
# Sections of the demo's help: (title, text).
_DEMO = (
    (
        "The demo",
        "It goes through the patterns by itself. quiet: the victims without aggressors, until the baseline is "
        "complete. stall: the aggressors run. remedy: the same work arranged so that nothing waits; its own baseline "
        "is measured first. The caption says what there is to see, and why it matters. A pattern that this machine "
        "does not support is skipped, and named at the end. The demo waits while a dialog is open.",
    ),
)
# Sections of the help by the name of the screen.
SECTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "monitor": _MONITOR,
    "patterns": _PATTERNS,
    "matrix": _MATRIX,
    "timeline": _TIMELINE,
    "watch": _WATCH,
    "processes": _PROCESSES,
    "demo": (*_DEMO, *_MONITOR),
}
