"""Sizes of the panels of the screen of a watched program."""

from __future__ import annotations

# Smallest screen width (columns) with the histogram and the output at the right of the tables. On a narrower screen,
# the histogram and the output are below the tables.
WIDE_COLUMNS = 150
# Number of lines for the header of the screen and for the keys.
_AROUND = 3
# Smallest height (lines) of the table of calls on a screen narrower than WIDE_COLUMNS.
_LEAST_TABLE = 4
# Screen height (lines), without header and keys, below which a screen shows one headline and no program lines. If the
# height without header, keys and headlines is below this number, a screen narrower than WIDE_COLUMNS shows no
# histogram.
_LOW = 18
# Number of lines, with header and keys, from which a screen shows up to four headlines and all listed program lines.
_ROOMY = 30
# Largest number of program lines that a screen with fewer than _ROOMY lines shows.
_FEW_LINES = 2


def watch_layout(
    width: int, height: int, division: int, headlines: int, rows: int, pane: bool, enlarged: bool, lines: int = 0
) -> dict[str, int]:
    """The heights in lines of a screen's panels by their ids, 0 for a hidden panel.

    The screen of ``width`` × ``height`` has so many lines of what bounds the program and of headlines, and ``rows``
    calls; ``lines`` of the program may stand with what bounds it. "slow" is also the height of what is shown in place
    of the slow calls.

    Without a ``pane`` the output goes to a file, which a line names; ``enlarged`` gives the output all the room.
    """
    rest = height - _AROUND
    division = min(division, 2 if rest < _LOW else 3 if height < _ROOMY else division)
    if division:
        division += 0 if rest < _LOW else min(lines, _FEW_LINES) if height < _ROOMY else lines
    lost = max(1, min(headlines, 1 if rest < _LOW or (division and height < _ROOMY) else 2 if height < _ROOMY else 4))
    rest -= lost
    low = rest < _LOW
    rest -= division
    heights = {"division": division, "lost": lost}
    if enlarged:
        return heights | {"calls": 0, "histograms": 0, "slow": 0, "output": rest}
    if width >= WIDE_COLUMNS:
        upper = min(max(rows + 2, 12), rest * 11 // 20)
        return heights | {"calls": upper, "histograms": upper, "slow": rest - upper, "output": rest - upper}
    output = 2 if not pane else max(3, rest // 6)
    histograms = 0 if low else min(10, max(5, rest // 5))
    rest -= output + histograms
    calls = min(max(rows + 1, _LEAST_TABLE), max(rest * 11 // 20, _LEAST_TABLE))
    return heights | {"calls": calls, "histograms": histograms, "slow": rest - calls, "output": output}
