"""The one table of what the screens can do: keys, last line, command palette and help all come from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AGGRESSOR_KEYS = "1234567890"
VICTIM_KEYS = "abcdfgijk"
HOST_KEY = "h"


@dataclass(frozen=True)
class Action:
    """One thing to do. ``name`` is that of the screen's method ``action_NAME`` and of the key in the settings.

    ``keys`` are Textual's names of keys, by commas. ``title`` is short, for the last line; ``what`` a sentence.
    ``rank`` is its place in the last line, 0 for not there. ``live`` actions make no sense in a replay, ``replay``
    ones only there.
    """

    name: str
    keys: str
    title: str
    what: str
    rank: int = 0
    live: bool = False
    replay: bool = False


ACTIONS = (
    Action("pick", "o,enter", "patterns", "Pick a pattern and variant, or one more probe of the catalogue.", 2, True),
    Action("pause", "p", "pause", "Stop and go on with the view; the probes go on all the while.", 3),
    Action("back", "left", "5 s back", "Go 5 seconds back in the recording.", 4, replay=True),
    Action("forward", "right", "5 s on", "Go 5 seconds forward in the recording.", 5, replay=True),
    Action("all_off", "x", "all off", "Switch everything off that disturbs.", 4, True),
    Action(
        "matrix",
        "m",
        "matrix",
        "The check: which call stalls beside what, of this machine or from a file, and what changed.",
        9,
    ),
    Action("explain", "e", "explain", "What happens to the focused probe, why, what helps, and the source.", 5),
    Action("remedy", "v", "remedy", "Switch to the next remedy of the pattern that is on.", 6, True),
    Action("focus_up", "up", "up", "Move the focus up."),
    Action("focus_down", "down", "down", "Move the focus down."),
    Action("focus_worst", "w", "worst", "Move the focus to the victim that suffers most.", 11),
    Action("switch", "space", "switch", "Switch the focused probe on or off.", 10, True),
    Action("quiet", "n", "new quiet", "Measure quiet again; what disturbs is off meanwhile.", 7, True),
    Action("clear", "l", "clear", "Begin window, history and log anew; quiet stays.", 13),
    Action(
        "trap",
        "t",
        "freeze on stall",
        "Freeze the view when a call takes longer than the threshold of the settings.",
        12,
    ),
    Action("faster", "plus,equals_sign", "faster", "Double the pace of the focused victim.", 0, True),
    Action("slower", "minus", "slower", "Halve the pace of the focused victim.", 0, True),
    Action("bigger", "right_square_bracket", "bigger", "Make the focused probe's copy four times as large.", 0, True),
    Action("smaller", "left_square_bracket", "smaller", "Make the focused probe's copy a quarter as large.", 0, True),
    Action("gpu", "u", "GPU", "Choose the GPU.", 15, True),
    Action("restart", "r", "restart", "Start the engine anew, also after it died.", 14, True),
    Action("copy", "y", "copy report", "Copy what is seen as text to the clipboard.", 16),
    Action("screenshot", "s", "SVG", "Save the screen as SVG in the working directory.", 17),
    Action("theme", "T", "theme", "Go to the next theme, light or dark.", 18),
    Action("help", "question_mark", "help", "All keys, and how to read the screen.", 1),
    Action("quit", "q", "quit", "Leave. The engine and all it made on the GPU go with it.", 1),
)

# What the matrix of a check can do; the last ones are the monitor's own.
CHECK_ACTIONS = (
    Action("check_run", "r", "run", "Run the check, quick or whole; the monitor's engine rests meanwhile.", 2, True),
    Action("check_stop", "x", "stop", "Stop the check and keep what was measured.", 3, True),
    Action("check_cell", "enter", "cell", "The chosen cell: its histograms, and what is to be said about it.", 4),
    Action("check_open", "o", "open", "Open a saved check.", 5),
    Action("check_save", "s", "save", "Save the check to a file.", 6),
    Action("check_compare", "c", "compare", "Compare with a saved check, or no longer.", 7),
    Action("check_differences", "d", "differences", "All that differs between the two checks.", 11),
    Action("check_order", "w", "worst first", "Rows and columns with the worst first, or as they were measured.", 8),
    Action("check_worst", "b", "worst cell", "Go to the cell that is worst.", 13),
    Action("check_figure", "f", "figures", "Next figures: as judged, p50, p99, and what changed.", 10),
    Action("check_up", "up", "up", "The row above."),
    Action("check_down", "down", "down", "The row below."),
    Action("check_left", "left", "left", "The column to the left."),
    Action("check_right", "right", "right", "The column to the right."),
    Action("check_page_up", "pageup", "page up", "A page up."),
    Action("check_page_down", "pagedown", "page down", "A page down."),
    Action("check_home", "home", "first", "The first cell of the row; once more, of the matrix."),
    Action("check_end", "end", "last", "The last cell of the row; once more, of the matrix."),
    Action("check_back", "m,escape", "monitor", "Back to the monitor; a check that runs is stopped first.", 9),
    *(action for action in ACTIONS if action.name in ("theme", "help", "quit")),
)

_SHOWN = {
    "question_mark": "?",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "page up",
    "pagedown": "page down",
}


def known(replayed: bool, table: Sequence[Action] = ACTIONS) -> tuple[Action, ...]:
    """The actions of ``table`` that make sense, live or in a replay."""
    return tuple(action for action in table if not (action.live if replayed else action.replay))


def keys_of(action: Action, changed: Mapping[str, str]) -> str:
    """The action's keys, by commas, after the settings had their say."""
    return changed.get(action.name, action.keys)


def shown(keys: str) -> str:
    """The first of ``keys`` as one would write it."""
    first = keys.split(",")[0].strip()
    return _SHOWN.get(first, first)


def hints(replayed: bool, changed: Mapping[str, str], table: Sequence[Action] = ACTIONS) -> tuple[tuple[str, str], ...]:
    """What the last line shows, the most important first."""
    ranked = sorted((action for action in known(replayed, table) if action.rank), key=lambda action: action.rank)
    return tuple((shown(keys_of(action, changed)), action.title) for action in ranked)
