"""Sections of the timeline's help: (title, text)."""

from __future__ import annotations

from stallscope.tui.timeline.glyphs import Glyphs


def sections(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    """All sections, with the letters of cells that the screen draws."""
    call, wait, unknown = glyphs.left[-1], glyphs.wait, glyphs.unknown
    left, right = glyphs.short[0], glyphs.short[1]
    parts = _listed(glyphs.left[:-1] + glyphs.right)
    short = (
        f"{left} and {right} are also a call shorter than a cell, in its left or right half"
        if left != right
        else f"{left} is also a call shorter than a cell"
    )
    rows = (
        f"Host calls: a row for each probe; {call} is a call, {wait} a wait for the GPU. GPU work: a row for each "
        f"stream, with context, stream and probes; {wait} is work that waits or runs, since it has a record when it "
        f"has ended. Graphics engine: a row for each context of this program, {call} while it has the engine, "
        f"{unknown} where that is not known. another process: work waited, and none of these contexts had the engine. "
        f"All rows have one time axis; {unknown} is a time that was not recorded."
    )
    cells = (
        f"{parts} are parts of a cell; {short}. {_listed(glyphs.density[:-1])} are several calls, by the share of the "
        "time that they take. Calls above the trigger's limit have another color, "
        f"{glyphs.slow_wait} while they wait, and {glyphs.slow} where they are shorter than a cell: other calls never "
        "hide them."
    )
    return (("Rows", rows), ("Cells", cells), *_SECTIONS)


def _listed(glyphs: str) -> str:
    return "".join(dict.fromkeys(glyphs))


_SECTIONS = (
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
        "calls. What was recorded in the last 12 s is kept. Opened from a probe that stalls, the timeline freezes on "
        "the worst call of that probe.",
    ),
    (
        "Cost",
        "While the timeline is on, calls are 1 to 10 µs longer: the monitor says so, has a baseline of its own for "
        "that state, and measures it while no aggressor runs. The timeline is switched off when this screen is closed, "
        "unless it is kept on. On a GPU, switching it on first takes some 16 s.",
    ),
)
