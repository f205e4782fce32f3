"""Glyphs of the trace: the letter of each cell of a raster, in blocks or in ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stallscope.tui.timeline.raster import Bools, Raster

# Smallest share of a character cell's width that a single call must cover to be drawn as a full cell.
_WHOLE = 0.94
# Largest distance (share of a character cell's width) from the begin or end of a call to the cell's border at which the
# call is drawn up to the border.
_EDGE = 0.03
# Limit for short calls and for waits, as a share (0 to 1) of a character cell's width. A single call inside the cell
# that covers less is drawn as a short call. A cell with several calls is drawn as a wait if waits cover at least this
# share, and more than the calls.
_HALF = 0.5
# Smallest width (eighths of a character cell) of a drawn call that begins at the cell's left border. A call of one
# eighth would look like a line.
_LEAST_EIGHTHS = 2
# Palette names of the styles in which the timeline draws a character cell; the index is a CellStyle.
STYLES = ("", "live", "dim", "hot", "heat", "baseline", "warn", "strong", "faint", "dim", "live")


class CellStyle(IntEnum):
    """Style of a character cell of the timeline; ``STYLES`` has the style's name in the palette.

    ``NONE``: an empty cell. ``CALL``: driver calls. ``WAIT``: waits, and GPU work that has not ended. ``SLOW``: a slow
    call or wait. ``WORK``: GPU work. ``TENURE``: time of a context on the graphics engine. ``FOREIGN``: time of another
    process, or driver overhead. ``SELECTED``: the selected call or work. ``UNKNOWN``: time without records. ``NOTE``:
    words in an empty row. ``COUNTER``: the level of a counter.
    """

    NONE = 0
    CALL = 1
    WAIT = 2
    SLOW = 3
    WORK = 4
    TENURE = 5
    FOREIGN = 6
    SELECTED = 7
    UNKNOWN = 8
    NOTE = 9
    COUNTER = 10


@dataclass(frozen=True)
class Glyphs:
    """The letters of cells.

    ``left`` are eight parts of a cell from its left edge on, the last one whole; ``right`` are a narrow and a half part
    at its right edge. ``short`` is a call within a cell, in its left and in its right half. ``density`` are eight
    shares of several calls. ``wait`` and ``slow_wait`` are hollow, ``slow`` is a slow call shorter than a cell.
    ``forward`` and ``backward`` are the heads of the delay's arrow. ``unknown`` is a time of which nothing is known.
    """

    left: str
    right: str
    short: str
    density: str
    wait: str
    slow_wait: str
    slow: str
    forward: str
    backward: str
    line: str
    end: str
    cursor: str
    unknown: str
    tick: str


# Unicode characters of a timeline.
BLOCK_GLYPHS = Glyphs("▏▎▍▌▋▊▉█", "▕▐", "▌▐", "▁▂▃▄▅▆▇█", *list("░▒◆▶◀─│▼·╵"))
# ASCII characters of a timeline, for a terminal without Unicode.
ASCII_GLYPHS = Glyphs("|||#####", "|#", "||", "..::++##", *list("-=@><-|v?'"))


def cell_glyphs(cells: Raster, glyphs: Glyphs) -> NDArray[np.str_]:
    """The letter of each cell, of a call before a wait; " " for an empty one."""
    letters = np.full(cells.solid.shape, " ", dtype="<U1")
    letters[cells.waits > 0] = glyphs.wait
    single_call, several = cells.calls == 1, cells.calls > 1
    share = cells.end - cells.begin
    left = np.array(list(glyphs.left))[np.clip(np.round(share * 8).astype(np.int64), _LEAST_EIGHTHS, 8) - 1]
    right = np.where(share >= 5 / 16, glyphs.right[1], glyphs.right[0])
    middle = np.where(cells.begin + cells.end < 1, glyphs.short[0], glyphs.short[1])
    single = np.where(cells.begin <= _EDGE, left, np.where(cells.end >= 1 - _EDGE, right, middle))
    # A short call at the left edge is as visible as one elsewhere in the cell.
    inside = (cells.begin > 0) & (cells.end < 1 - _EDGE)
    single = np.where(inside & (share < _HALF), middle, single)
    letters[single_call] = np.where(share >= _WHOLE, glyphs.left[-1], single)[single_call]
    covered = np.clip(np.ceil((cells.solid + cells.hollow) * 8).astype(np.int64), 1, 8) - 1
    letters[several] = np.array(list(glyphs.density))[covered][several]
    letters[several & _mostly_waits(cells)] = glyphs.wait
    letters[cells.slow_wait & (letters == glyphs.wait)] = glyphs.slow_wait
    letters[cells.short] = glyphs.slow
    return letters


def cell_styles(cells: Raster, usual: Sequence[CellStyle]) -> NDArray[np.intp]:
    """The CellStyle of each cell; ``usual`` are the styles of solid intervals by row."""
    styles = np.full(cells.solid.shape, CellStyle.NONE, dtype=np.intp)
    styles[cells.waits > 0] = CellStyle.WAIT
    styles = np.where(cells.calls > 0, np.array(usual, dtype=np.intp).reshape(-1, 1), styles)
    styles[(cells.calls > 1) & _mostly_waits(cells)] = CellStyle.WAIT
    styles[cells.slow_wait & (styles == CellStyle.WAIT)] = CellStyle.SLOW
    styles[cells.slow_call | cells.short] = CellStyle.SLOW
    return styles


def _mostly_waits(cells: Raster) -> Bools:
    return (cells.hollow >= _HALF) & (cells.hollow > cells.solid)


def help_words(glyphs: Glyphs) -> dict[str, str]:
    """The letters of cells that the help of the screen names."""
    left, right = glyphs.short[0], glyphs.short[1]
    short = f"{left} and {right} are" if left != right else f"{left} is"
    half = ", in its left or right half" if left != right else ""
    return {
        "call": glyphs.left[-1],
        "wait": glyphs.wait,
        "unknown": glyphs.unknown,
        "parts": _listed(glyphs.left[:-1] + glyphs.right),
        "short": f"{short} also a call shorter than a cell{half}",
        "several": _listed(glyphs.density[:-1]),
        "slow_wait": glyphs.slow_wait,
        "slow": glyphs.slow,
    }


def _listed(glyphs: str) -> str:
    return "".join(dict.fromkeys(glyphs))
