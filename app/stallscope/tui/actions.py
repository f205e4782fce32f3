"""Actions of all screens. Key bindings, key bar, command palette, help and the settings file come from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

AGGRESSOR_KEYS = "1234567890"
VICTIM_KEYS = "abcdfijkz"
HOST_KEY = "h"
# Two actions that go one step back and one step forward have one method, which takes -1 or 1.
_STEPS = {
    ("back", "forward"): "seek",
    ("focus_up", "focus_down"): "focus_row",
    ("faster", "slower"): "scale_period",
    ("smaller", "bigger"): "scale_size",
    ("span_shorter", "span_longer"): "change_span",
    ("check_page_up", "check_page_down"): "check_page",
    ("trace_in", "trace_out"): "trace_zoom",
    ("trace_left", "trace_right"): "trace_pan",
    ("trace_up", "trace_down"): "trace_row",
    ("trace_previous", "trace_next"): "trace_interval",
    ("trace_lower", "trace_higher"): "trace_limit",
    ("trace_before", "trace_after"): "trace_share",
    ("trace_prior", "trace_following"): "trace_recorded",
    ("watch_back", "watch_forward"): "seek",
    ("watch_up", "watch_down"): "watch_row",
    ("watch_page_up", "watch_page_down"): "watch_page",
    ("process_up", "process_down"): "process_row",
    ("process_page_up", "process_page_down"): "process_page",
    ("process_first", "process_last"): "process_end",
}
_CALLS = {
    **{name: f"{method}({by})" for pair, method in _STEPS.items() for name, by in zip(pair, (-1, 1), strict=True)},
    "check_up": "check_move(-1, 0)",
    "check_down": "check_move(1, 0)",
    "check_left": "check_move(0, -1)",
    "check_right": "check_move(0, 1)",
    # Ten tenths of the span.
    "trace_page_left": "trace_pan(-10)",
    "trace_page_right": "trace_pan(10)",
    # Actions that differ between screens in their keys or descriptions only.
    "watch_pause": "pause",
    "watch_freeze": "trap",
    "watch_explain": "explain",
    "watch_quit": "leave",
    "processes_quit": "leave",
    "quit": "leave",
    "theme": "app.next_theme",
}
# Actions that need nothing of what their screen reads when it is opened; all others of it wait for that.
_AT_ONCE = frozenset(
    {
        *("theme", "help", "quit", "screenshot", "restart"),
        *("check_run", "check_stop", "check_open", "check_back"),
        *("trace_trigger", "trace_in", "trace_out", "trace_lower", "trace_higher", "trace_auto"),
        *("trace_before", "trace_after", "trace_keep", "trace_back"),
        *("processes_back", "processes_quit"),
    }
)


@dataclass(frozen=True)
class Action:
    """One action of a screen.

    ``name`` is the key of the action in the settings; the screen has a method ``action_NAME`` or that of ``_CALLS``, or
    with ``opens_screen`` there is a screen of that name. ``keys`` are Textual's names of keys, separated by commas.
    ``title`` is for the key bar, ``description`` is a sentence. ``rank`` is the position in the key bar, 0 for not
    there. ``live_only`` actions are not available in a replay, ``replay_only`` actions only there. An action that
    ``yields`` leaves its keys to an action to which the settings give them.
    """

    name: str
    keys: str
    title: str
    description: str
    rank: int = 0
    live_only: bool = False
    replay_only: bool = False
    opens_screen: bool = False
    yields: bool = False

    @property
    def call(self) -> str:
        """The action as Textual calls it."""
        return f"open('{self.name}')" if self.opens_screen else _CALLS.get(self.name, self.name)

    @property
    def at_once(self) -> bool:
        """Whether the action needs nothing of what its screen reads when it is opened."""
        return self.name in _AT_ONCE

    def available(self, replayed: bool) -> bool:
        """Whether the action makes sense live, or in a replay."""
        return not (self.live_only if replayed else self.replay_only)


_EVERYWHERE = (
    Action("theme", "T", "theme", "Switch to the next color theme.", 18),
    Action("help", "question_mark", "help", "Show all keys and explain the screen.", 1),
    Action("quit", "q", "quit", "Quit. The engine ends and releases everything on the GPU.", 1),
)
_SCREENSHOT = Action("screenshot", "s", "SVG", "Save the screen as an SVG file in the working directory.", 17)
_RESTART = Action("restart", "r", "restart", "Restart the engine.", 14, True)
_TIMELINE = Action(
    "timeline",
    "g",
    "timeline",
    "Open the timeline: host calls, GPU work and contexts on one time axis; it freezes on a stall.",
    9,
    opens_screen=True,
)
MONITOR_ACTIONS = (
    Action("pick", "o,enter", "patterns", "Select a pattern and variant, or add a probe from the catalog.", 2, True),
    Action("pause", "p", "pause", "Pause or resume the view. The probes keep running.", 3),
    Action("back", "left", "-5 s", "Go 5 seconds back in the recording.", 4, replay_only=True),
    Action("forward", "right", "+5 s", "Go 5 seconds forward in the recording.", 5, replay_only=True),
    Action("all_off", "x", "all off", "Switch all aggressors off.", 4, True),
    Action("all_on", "X", "all on", "Switch all aggressors on.", 0, True),
    Action(
        "matrix",
        "m",
        "matrix",
        "Open the check matrix: run, open, save and compare checks of victims and aggressors.",
        9,
        opens_screen=True,
    ),
    _TIMELINE,
    Action(
        "processes",
        "P",
        "processes",
        "List the processes that use the GPUs, and attach one to see its CUDA calls.",
        10,
        True,
        opens_screen=True,
        yields=True,
    ),
    Action("explain", "e", "explain", "Explain the probe that is shown: what it does, causes, remedies, source.", 5),
    Action("remedy", "v", "remedy", "Measure the next remedy of the pattern, else of the stall.", 6, True),
    Action("focus_up", "up", "up", "Select the row above."),
    Action("focus_down", "down", "down", "Select the row below."),
    Action(
        "follow",
        "w",
        "follow",
        "Show the victim that stalls worst, and follow the stall: until a row is selected, whichever victim stalls.",
        8,
    ),
    Action("switch", "space", "switch", "Switch the probe that is shown on or off, and select it.", 10, True),
    Action(
        "blame",
        "B",
        "blame",
        "Find which aggressor is the cause: switch each on and off. Again, or esc: end it.",
        8,
        True,
    ),
    Action(
        "blame_stop",
        "escape",
        "end blame, back",
        "End the blame experiment; else return from a remedy or pattern to the probes that were there before.",
        0,
        True,
    ),
    Action("quiet", "n", "new baseline", "Measure the baseline again. Aggressors pause meanwhile.", 7, True),
    Action("clear", "l", "clear", "Clear window, history and log. The baseline stays.", 13),
    Action(
        "trap",
        "t",
        "freeze on stall",
        "Freeze the view when a call takes longer than the setting freeze_above_ms.",
        12,
    ),
    Action("span_shorter", "plus,equals_sign", "shorter", "Show a shorter time: 5 minutes, 60 s, 20 s.", yields=True),
    Action("span_longer", "minus", "longer", "Show a longer time: 20 s, 60 s, 5 minutes.", yields=True),
    Action("larger", "H", "larger", "Give the rows of the heat map to the histogram, or give them back.", 11),
    Action("faster", "greater_than_sign", "faster", "Double the call rate of the victim that is shown.", 0, True),
    Action("slower", "less_than_sign", "slower", "Halve the call rate of the victim that is shown.", 0, True),
    Action(
        "bigger",
        "right_square_bracket",
        "bigger",
        "Copy four times as much with the probe that is shown.",
        0,
        True,
    ),
    Action(
        "smaller", "left_square_bracket", "smaller", "Copy a quarter as much with the probe that is shown.", 0, True
    ),
    Action("gpu", "u", "GPU", "Select the GPU.", 15, True),
    _RESTART,
    Action("copy", "y", "copy report", "Copy a text report of the view to the clipboard.", 16),
    _SCREENSHOT,
    *_EVERYWHERE,
)
MATRIX_ACTIONS = (
    Action("check_run", "r", "run", "Run a quick or full check. The monitor's engine stops meanwhile.", 2, True),
    Action("check_stop", "x", "stop", "Stop the check and keep what was measured.", 3, True),
    Action("check_cell", "enter", "cell", "Open the selected cell: histograms, verdicts, percentiles.", 4),
    Action("check_open", "o", "open", "Open a saved check.", 5),
    Action("check_save", "s", "save", "Save the check to a file.", 6),
    Action("check_compare", "c", "compare", "Compare with a saved check, or end the comparison.", 7),
    Action("check_differences", "d", "differences", "List all differences between the two checks.", 11),
    Action("check_order", "w", "worst first", "Sort rows and columns by severity, or in the order of the check.", 8),
    Action("check_worst", "b", "worst cell", "Go to the worst cell.", 13),
    Action("check_figure", "f", "values", "Show the next values: judged, p50, p99, change.", 10),
    Action("check_up", "up", "up", "Go to the row above."),
    Action("check_down", "down", "down", "Go to the row below."),
    Action("check_left", "left", "left", "Go to the column on the left."),
    Action("check_right", "right", "right", "Go to the column on the right."),
    Action("check_page_up", "pageup", "page up", "Go one page up."),
    Action("check_page_down", "pagedown", "page down", "Go one page down."),
    Action("check_home", "home", "first", "Go to the first cell of the row; again: to the first of the matrix."),
    Action("check_end", "end", "last", "Go to the last cell of the row; again: to the last of the matrix."),
    Action("check_back", "m,escape", "monitor", "Return to the monitor. A running check is stopped first.", 9),
    *_EVERYWHERE,
)


def _added(
    name: str,
    keys: str,
    title: str,
    description: str,
    rank: int = 0,
    live_only: bool = False,
    replay_only: bool = False,
) -> Action:
    # Its screen came after users had chosen keys.
    return Action(name, keys, title, description, rank, live_only, replay_only, yields=True)


TIMELINE_ACTIONS = (
    _added(
        "trace_trigger",
        "t",
        "trigger",
        "Arm the trigger: freeze at the first call slower than its limit. Again: disarm; when frozen: arm again.",
        2,
        True,
    ),
    _added("trace_pause", "p", "freeze", "Freeze the trace now, or return to live.", 3, True),
    _added("trace_home", "home", "return", "Return to live; of a recorded trace: go to its trigger.", 4),
    _added("trace_worst", "w", "worst", "Select the call of the visible span that exceeds its limit most.", 5),
    _added("trace_in", "plus,equals_sign", "zoom in", "Shorten the span to the next of 1, 2, 5.", 6),
    _added("trace_out", "minus", "zoom out", "Lengthen the span to the next of 1, 2, 5.", 7),
    _added("trace_left", "left", "earlier", "Pan to earlier times.", 8),
    _added("trace_right", "right", "later", "Pan to later times.", 9),
    _added("trace_page_left", "pageup", "page earlier", "Pan by a whole span to earlier times."),
    _added("trace_page_right", "pagedown", "page later", "Pan by a whole span to later times."),
    _added("trace_up", "up", "up", "Select the row above."),
    _added("trace_down", "down", "down", "Select the row below."),
    _added("trace_previous", "comma,shift+left", "previous call", "Select the previous call of the row.", 10),
    _added("trace_next", "full_stop,shift+right", "next call", "Select the next call of the row.", 11),
    _added("trace_center", "enter", "center", "Center the selected call, in a span that fits it and its work.", 12),
    _added("trace_lower", "left_square_bracket", "lower limit", "Lower the trigger's limit.", 0, True),
    _added("trace_higher", "right_square_bracket", "higher limit", "Raise the trigger's limit.", 0, True),
    _added("trace_auto", "a", "limit by baseline", "Have the trigger's limits follow the baselines.", 0, True),
    _added("trace_before", "left_curly_bracket", "less before", "Show less of the time before the trigger.", 0, True),
    _added("trace_after", "right_curly_bracket", "more before", "Show more of the time before the trigger.", 0, True),
    _added("trace_keep", "k", "keep on", "Leave the timeline on, or off again, after this screen is closed.", 13, True),
    _added("trace_export", "x", "export", "Write the visible span to a file: text, SVG, or a trace for Perfetto.", 15),
    _added("trace_prior", "b", "previous trace", "Show the previous trace of the recording.", 2, replay_only=True),
    _added("trace_following", "n", "next trace", "Show the next trace of the recording.", 3, replay_only=True),
    _added("trace_back", "g,escape", "monitor", "Return to the monitor. The timeline is switched off.", 14),
    _RESTART,
    _SCREENSHOT,
    *_EVERYWHERE,
)


WATCH_ACTIONS = (
    _added("watch_pause", "p", "pause", "Pause or resume the view. The program keeps running.", 2),
    _added("watch_back", "left", "-5 s", "Go 5 seconds back in the recording.", 3, replay_only=True),
    _added("watch_forward", "right", "+5 s", "Go 5 seconds forward in the recording.", 4, replay_only=True),
    _added(
        "watch_freeze",
        "t",
        "freeze on stall",
        "Freeze the view when a call takes longer than the setting freeze_above_ms, and keep its trace.",
        3,
        True,
    ),
    _TIMELINE,
    _added(
        "watch_explain",
        "e,enter",
        "explain",
        "Explain the selected line or call: what it costs, its slow calls, and what helps.",
        8,
    ),
    _added("watch_up", "up", "up", "Select the line or row above."),
    _added("watch_down", "down", "down", "Select the line or row below."),
    _added("watch_page_up", "pageup", "page up", "Go one page up."),
    _added("watch_page_down", "pagedown", "page down", "Go one page down."),
    _added("watch_worst", "w", "worst", "Select the call that lost most time.", 12),
    _added("watch_output", "o", "output", "Enlarge the pane of the program's output, or reduce it.", 10),
    _added("watch_copy", "y", "copy report", "Copy the text report to the clipboard.", 16),
    _SCREENSHOT,
    *(action for action in _EVERYWHERE if action.name != "quit"),
    _added("watch_quit", "q", "quit", "Quit. A program that still runs is ended, after a question.", 1),
)

PROCESSES_ACTIONS = (
    _added("attach", "enter", "attach", "Attach the selected process: show its CUDA calls and what they wait for.", 2),
    _added("process_up", "up", "up", "Select the process above."),
    _added("process_down", "down", "down", "Select the process below."),
    _added("process_page_up", "pageup", "page up", "Go one page up."),
    _added("process_page_down", "pagedown", "page down", "Go one page down."),
    _added("process_first", "home", "first", "Select the first process."),
    _added("process_last", "end", "last", "Select the last process."),
    _added("processes_back", "escape,P", "monitor", "Return to the monitor.", 3),
    _SCREENSHOT,
    *(action for action in _EVERYWHERE if action.name != "quit"),
    _added("processes_quit", "q", "quit", "Quit.", 1),
)

_DEMO_SHARED = ("explain", "focus_up", "focus_down", "follow")
DEMO_ACTIONS = (
    _added("demo_next", "right,n", "next", "Go to the next step of the demo.", 2, True),
    _added("demo_back", "left,backspace", "back", "Go to the previous step of the demo.", 3, True),
    _added("demo_pause", "p,space", "pause", "Pause or resume the demo. The probes keep running.", 4, True),
    _added("demo_end", "end", "results", "End the demo here, and show the table of what was found.", 6, True),
    *(action for action in MONITOR_ACTIONS if action.name in _DEMO_SHARED),
    _RESTART,
    _SCREENSHOT,
    *_EVERYWHERE,
)

# One line for each screen: its name, which is also its folder and its style sheet, and its actions.
SCREENS: Mapping[str, tuple[Action, ...]] = {
    "monitor": MONITOR_ACTIONS,
    "matrix": MATRIX_ACTIONS,
    "timeline": TIMELINE_ACTIONS,
    "watch": WATCH_ACTIONS,
    "processes": PROCESSES_ACTIONS,
    "demo": DEMO_ACTIONS,
}

_KEY_LABELS = {
    "question_mark": "?",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
    "comma": ",",
    "full_stop": ".",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
}


def all_actions() -> tuple[Action, ...]:
    """The actions of all screens, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(SCREENS.values())))


def available(replayed: bool, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Those of ``actions`` that are available live, or in a replay."""
    return tuple(action for action in actions if action.available(replayed))


def keys_of(action: Action, changed: Mapping[str, str]) -> str:
    """The keys of ``action``, separated by commas; ``changed`` are the settings' keys by action name."""
    return changed.get(action.name, action.keys)


def key_label(keys: str, ascii_only: bool = False) -> str:
    """The first of ``keys`` as a person writes it; in ASCII arrows have names, since ``<`` is a key too."""
    first = keys.split(",")[0].strip()
    label = _KEY_LABELS.get(first, first)
    return label if label.isascii() or not ascii_only else first


def key_hints(
    replayed: bool, changed: Mapping[str, str], actions: tuple[Action, ...], ascii_only: bool = False
) -> tuple[tuple[str, str, str], ...]:
    """The key bar's entries (key, title, Textual's call) by rank."""
    ranked = sorted((one for one in available(replayed, actions) if one.rank), key=lambda action: action.rank)
    return tuple((key_label(keys_of(action, changed), ascii_only), action.title, action.call) for action in ranked)
