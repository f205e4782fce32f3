"""Sections of the matrix screen's help: (title, text)."""

from __future__ import annotations

SECTIONS = (
    (
        "Rows and columns",
        "A row is a victim, a column is an aggressor. The first column, quiet, is the victim alone. Each cell is "
        "measured several times, in random order, and compared with its own baseline just before and after.",
    ),
    (
        "Values",
        "The ratio to the cell's own baseline. Judged: the percentile that the verdict names, p50 where the cell is "
        "quiet. c is the time inside the call, w the wait until the host sees the work complete. !! stalled: at least "
        "3 times. !* only at p99. ! slower: at least 1.5 times. ? drift: as slow after the aggressor stopped. ~ host "
        "noise: the machine itself was slower.",
    ),
    (
        "Words",
        "STARVED: fewer than 3 calls returned in 0.5 s. invalid: measured, but not counted; the cell shows the reason. "
        "– is not possible on this machine, · is not measured.",
    ),
    (
        "Comparison",
        "SLOWER and FASTER: changes beyond chance, at the false alarm rate given for the whole comparison. UNSURE: too "
        "few calls or too much noise for a decision. STARVES: it did not starve before. The ratio is new over old.",
    ),
)
