"""Sections of the help of a watched program's screen: (title, text)."""

from __future__ import annotations

SECTIONS = (
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
        "Shows the slow calls, the calls in flight, the GPU work and who had the graphics engine; calls that were not "
        "slow are only counted. It opens on the last 2 s, home returns to them. freeze on stall keeps the trace of the "
        "call.",
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
