"""Actions of all screens. Key bindings, key bar, command palette, help and the settings file come from this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain

# Keys that switch the aggressors on and off, in their order in the table.
AGGRESSOR_KEYS = "1234567890"
# Keys that select the victims, in their order in the table.
VICTIM_KEYS = "abcdfiz"
# Key that selects the host control: the probe of the host's noise, without CUDA.
HOST_KEY = "h"
# Method by pair of actions. The first action of a pair calls the method with -1 (a step back), the second action with 1
# (a step forward).
_STEPS = {
    ("back", "forward"): "seek",
    ("focus_up", "focus_down"): "focus_row",
    ("slower", "faster"): "scale_rate",
    ("smaller", "bigger"): "scale_size",
    ("span_shorter", "span_longer"): "change_span",
    ("check_page_up", "check_page_down"): "check_page",
    ("pattern_up", "pattern_down"): "pattern_row",
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
    ("previous_view", "next_view"): "change_view",
    ("demo_back", "demo_next"): "demo_step",
    ("demo_page_up", "demo_page_down"): "focus_row",
}
# Second action of each pair of opposite actions, by the first action. The help has one line for the two actions of a
# pair.
_PAIRS = {
    **{pair[0]: pair[1] for pair in _STEPS},
    "check_up": "check_down",
    "check_left": "check_right",
    "check_home": "check_end",
    "trace_page_left": "trace_page_right",
    "all_off": "all_on",
}
# Method call for each action whose method is not called action_NAME. Actions that open a screen are not listed.
_CALLS = {
    **{name: f"{method}({by})" for pair, method in _STEPS.items() for name, by in zip(pair, (-1, 1), strict=True)},
    "check_up": "check_move(-1, 0)",
    "check_down": "check_move(1, 0)",
    "check_left": "check_move(0, -1)",
    "check_right": "check_move(0, 1)",
    # trace_pan takes tenths of the visible time: 10 are a page.
    "trace_page_left": "trace_pan(-10)",
    "trace_page_right": "trace_pan(10)",
    # Actions of different screens with one method: only keys and descriptions differ. theme: a method of the app.
    "watch_pause": "pause",
    "watch_freeze": "trap",
    "watch_explain": "explain",
    "watch_all_off": "all_off",
    "watch_quit": "leave",
    "processes_quit": "leave",
    "quit": "leave",
    "theme": "app.next_theme",
}
# Actions that run at once, because the actions need no data of their screen. Actions that open a screen run at once
# too. All other actions wait until the screen has its data.
_AT_ONCE = frozenset(
    {
        *("theme", "help", "quit", "screenshot", "restart", "go_back", "next_view", "previous_view"),
        *("check_run", "check_stop", "check_open"),
        *("trace_trigger", "trace_in", "trace_out", "trace_lower", "trace_higher", "trace_auto"),
        *("trace_before", "trace_after", "trace_run", "processes_quit"),
    }
)

# Texts of actions in the help in place of their titles. Reason: the title is too short to explain the action, or the
# line is for the two actions of a pair.
_WORDS = {
    "all_off": "all off, all on",
    "remedy": "measure a remedy",
    "blame": "find which is the cause",
    "switch": "shown call on or off",
    "slower": "call rate",
    "smaller": "copy size",
    "focus_up": "select a row",
    "explain": "explain the shown call",
    "follow": "the worst, and follow it",
    "span_shorter": "time axis: 20 s to 5 min",
    "larger": "larger histogram, or map",
    "pause": "pause the view",
    "back": "5 s back, on",
    "clear": "clear what is drawn",
    "go_back": "one level back",
    "previous_view": "previous, next view",
    "pattern_up": "select a line",
    "gpu": "select the GPU",
    "copy": "copy as text",
    "restart": "restart the engine",
    "quit": "quit; frees the GPU",
    "screenshot": "save SVG",
    "theme": "next colors",
    "load": "load what is selected",
    "find": "find words",
    "check_run": "run a check",
    "check_stop": "stop the check",
    "check_open": "load a saved check",
    "check_save": "save the check",
    "check_compare": "compare with a saved one",
    "check_cell": "open the cell",
    "check_worst": "the worst cell",
    "check_order": "worst first or as measured",
    "check_up": "row above, below",
    "check_left": "column",
    "check_page_up": "page up, down",
    "check_home": "first, last of the row",
    "trace_run": "recording on or off",
    "trace_lower": "its limit",
    "trace_before": "time before trigger",
    "trace_pause": "freeze, return to live",
    "trace_worst": "the worst call",
    "trace_in": "zoom",
    "trace_left": "earlier, later",
    "trace_page_left": "by a whole span",
    "trace_up": "select a row",
    "trace_previous": "its calls",
    "trace_prior": "previous, next trace",
    "trace_export": "export the span",
    "watch_back": "5 s back, on",
    "watch_up": "select a line or row",
    "watch_page_up": "page up, down",
    "watch_beside": "aggressors beside it",
    "attach": "attach the process",
    "process_up": "select a process",
    "process_page_up": "page up, down",
    "process_first": "first, last",
    "demo_back": "previous, next step",
    "demo_page_up": "page up, down",
    "demo_end": "results",
}


class Group(StrEnum):
    """Group of actions in the help; the value is its heading."""

    RUN = "RUN"
    LOOK = "LOOK"
    GO_TO = "GO TO"
    OTHER = "OTHER"


@dataclass(frozen=True)
class Action:
    """One action of a screen.

    - ``name``: the key of the action in the settings. The screen has a method ``action_NAME``, or the method in
      ``_CALLS``; with ``opens_screen`` the name is a screen's.
    - ``keys``: Textual's names of keys, separated by commas.
    - ``title``: text of the key bar.
    - ``description``: a sentence.
    - ``rank``: the position in the key bar, 0 for not there.
    - ``live_only`` and ``replay_only``: the action is not available in a replay, or only there.
    - ``yields``: the action leaves its keys to another action if the settings assign them to it.
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
    group: Group = Group.OTHER

    @property
    def call(self) -> str:
        """The action as Textual calls it."""
        return f"open('{self.name}')" if self.opens_screen else _CALLS.get(self.name, self.name)

    @property
    def short_text(self) -> str:
        """The few words of the help."""
        return _WORDS.get(self.name, self.title)

    @property
    def at_once(self) -> bool:
        """True if the action needs no data that its screen reads when it opens."""
        return self.opens_screen or self.name in _AT_ONCE

    def available(self, replayed: bool) -> bool:
        """True if the action makes sense live, or in a replay."""
        return not (self.live_only if replayed else self.replay_only)


def _in(group: Group, *actions: Action) -> tuple[Action, ...]:
    return tuple(replace(action, group=group) for action in actions)


# Constructor of actions that give up a key if the settings assign it to another action: older settings stay valid.
_added = partial(Action, yields=True)

# Action that goes one level back.
_BACK = _added(
    "go_back",
    "escape",
    "back",
    "Go one level back: end blame, reduce an enlarged panel, return from a remedy or pattern, then from the view.",
    1,
)
# Actions that open another view.
_VIEWS = (
    _added("previous_view", "shift+tab", "previous view", "Go to the previous view of the first line."),
    _added("next_view", "tab", "views", "Go to the next view of the first line.", 4),
    _added("patterns", "o", "patterns", "Select a pattern and variant, or add a probe.", 5, True, opens_screen=True),
    _added("matrix", "m", "check", "See, run, compare and save checks of victims.", 11, opens_screen=True),
    _added("timeline", "g", "timeline", "See host calls, GPU work and contexts on one axis.", 10, opens_screen=True),
    _added("processes", "P", "processes", "List the processes on the GPUs; attach one.", 18, True, opens_screen=True),
)
# Actions of the group "go to", on every screen except the demo.
_GO_TO = _in(Group.GO_TO, _BACK, *_VIEWS)
# Rank of the help key in the key bar, which shows low ranks first and leaves out high ranks on a narrow screen.
HELP_RANK = 3
_HELP = Action("help", "question_mark", "help", "Show all keys and explain the screen.", HELP_RANK)
_QUIT = Action("quit", "q", "quit", "Quit. The engine ends and releases everything on the GPU.", 2)
# Actions of every screen, except that the screens watch and processes have quit actions of their own.
_EVERYWHERE = (
    _HELP,
    _QUIT,
    Action("screenshot", "s", "SVG", "Save the screen as an SVG file in the working directory.", 17),
    Action("theme", "T", "theme", "Switch to the next color theme.", 18),
)
_COPY = Action("copy", "y", "copy report", "Copy the view as text to the clipboard.", 16)
_RESTART = Action("restart", "R", "restart", "Restart the engine.", 14, True)
_ALL_OFF = Action("all_off", "x", "all off", "Switch all aggressors off.", 6, True)
# Actions of the group "other" that the monitor and the timeline share.
_PROBE_SCREEN_ACTIONS = (_COPY, _RESTART, *_EVERYWHERE)
# Description of the key that selects the victim with the worst stall.
_WORST = "Show the victim that stalls worst, and follow the stall: until a row is selected, whichever victim stalls."
# Actions of the monitor.
MONITOR_ACTIONS = (
    *_in(
        Group.RUN,
        _ALL_OFF,
        Action("all_on", "X", "all on", "Switch all aggressors on.", 0, True),
        Action("remedy", "v", "remedy", "Measure the next remedy of the pattern, else of the stall.", 7, True),
        Action(
            "blame",
            "B",
            "blame",
            "Find which aggressor is the cause: switch each on and off. Again, or esc: end it.",
            9,
            True,
        ),
        Action("quiet", "n", "new baseline", "Measure the baseline again. Aggressors pause meanwhile.", 15, True),
        Action("switch", "space", "switch", "Switch the probe that is shown on or off, and select it.", 0, True),
        _added("slower", "less_than_sign", "slower", "Halve the call rate of the victim.", 0, True),
        _added("faster", "greater_than_sign", "faster", "Double the call rate of the victim.", 0, True),
        _added("smaller", "left_parenthesis", "smaller", "Copy a quarter as much.", 0, True),
        _added("bigger", "right_parenthesis", "bigger", "Copy four times as much.", 0, True),
    ),
    *_in(
        Group.LOOK,
        _added("focus_up", "up,k", "up", "Select the row above."),
        _added("focus_down", "down,j", "down", "Select the row below."),
        Action(
            "explain",
            "e,enter",
            "explain",
            "Explain the probe that is shown: what it does, causes, remedies, source.",
            8,
        ),
        Action("follow", "w", "worst", _WORST, 13),
        _added("span_shorter", "plus,equals_sign", "shorter", "Show a shorter time: 5 minutes, 60 s, 20 s."),
        _added("span_longer", "minus", "longer", "Show a longer time: 20 s, 60 s, 5 minutes."),
        Action("larger", "H", "larger", "Give the rows of the heat map to the histogram, or give them back.", 16),
        Action("pause", "p", "pause", "Pause or resume the view. The probes keep running.", 12),
        Action(
            "trap",
            "t",
            "freeze on stall",
            "Freeze the view when a call takes longer than the setting freeze_above_ms.",
            14,
        ),
        Action("back", "left", "-5 s", "Go 5 seconds back in the recording.", 5, replay_only=True),
        Action("forward", "right", "+5 s", "Go 5 seconds forward in the recording.", 6, replay_only=True),
        Action("clear", "l", "clear", "Clear window, history and log. The baseline stays."),
    ),
    *_GO_TO,
    *_in(Group.OTHER, Action("gpu", "u", "GPU", "Select the GPU.", 0, True), *_PROBE_SCREEN_ACTIONS),
)
PATTERNS_ACTIONS = (
    *_in(
        Group.RUN,
        _added(
            "load",
            "enter",
            "load",
            "Load the variant or probe: the baseline is measured, then the aggressors start.",
            4,
        ),
    ),
    *_in(
        Group.LOOK,
        _added("find", "slash", "find", "Show the lines with the words that you type.", 5),
        _added("pattern_up", "up,k", "up", "Select the line above."),
        _added("pattern_down", "down,j", "down", "Select the line below."),
    ),
    *_GO_TO,
    *_EVERYWHERE,
)
MATRIX_ACTIONS = (
    *_in(
        Group.RUN,
        Action("check_run", "r", "run", "Run a quick or full check. The monitor's engine stops meanwhile.", 4, True),
        Action("check_stop", "x", "stop", "Stop the check and keep what was measured.", 7, True),
        Action("check_open", "L", "load", "Open a saved check.", 8),
        Action("check_save", "S", "save", "Save the check to a file.", 9),
        Action("check_compare", "C", "compare", "Compare with a saved check, or end the comparison.", 6),
    ),
    *_in(
        Group.LOOK,
        Action("check_cell", "enter", "cell", "Open the cell: histograms, verdicts, percentiles.", 4),
        Action("check_worst", "w", "worst", "Go to the worst cell.", 5),
        Action("check_differences", "D", "changes", "List all differences between the two checks.", 12),
        Action("check_order", "W", "order", "Sort rows and columns by severity, or in the order of the check.", 13),
        _added("check_up", "up,k", "up", "Go to the row above."),
        _added("check_down", "down,j", "down", "Go to the row below."),
        Action("check_left", "left", "left", "Go to the column on the left."),
        Action("check_right", "right", "right", "Go to the column on the right."),
        Action("check_page_up", "pageup", "page up", "Go one page up."),
        Action("check_page_down", "pagedown", "page down", "Go one page down."),
        Action("check_home", "home", "first", "Go to the first cell of the row; again: to the first of the matrix."),
        Action("check_end", "end", "last", "Go to the last cell of the row; again: to the last of the matrix."),
    ),
    *_GO_TO,
    _COPY,
    *_EVERYWHERE,
)


TIMELINE_ACTIONS = (
    *_in(
        Group.RUN,
        _added(
            "trace_run",
            "r",
            "record",
            "Start or end the recording. It makes calls 1 to 10 µs longer; on a GPU it first takes some 16 s.",
            4,
            True,
        ),
        _ALL_OFF,
        _added(
            "trace_trigger",
            "t",
            "freeze on stall",
            "Arm the trigger: freeze at the first call slower than its limit. Again: disarm; when frozen: arm again.",
            5,
            True,
        ),
        _added("trace_lower", "left_square_bracket", "lower limit", "Lower the trigger's limit.", 0, True),
        _added("trace_higher", "right_square_bracket", "higher limit", "Raise the trigger's limit.", 0, True),
        _added("trace_auto", "A", "limit by baseline", "Have the trigger's limits follow the baselines.", 0, True),
        _added(
            "trace_before", "left_curly_bracket", "less before", "Show less of the time before the trigger.", 0, True
        ),
        _added(
            "trace_after", "right_curly_bracket", "more before", "Show more of the time before the trigger.", 0, True
        ),
    ),
    *_in(
        Group.LOOK,
        _added("trace_pause", "p", "pause", "Freeze the trace now, or return to live.", 7, True),
        _added("trace_home", "home", "return", "Return to live; of a recorded trace: go to its trigger.", 8),
        _added("trace_worst", "w", "worst", "Select the visible call that exceeds its limit most.", 6),
        _added("trace_in", "plus,equals_sign", "zoom in", "Shorten the span to the next of 1, 2, 5.", 11),
        _added("trace_out", "minus", "zoom out", "Lengthen the span to the next of 1, 2, 5.", 12),
        _added("trace_left", "left", "earlier", "Pan to earlier times."),
        _added("trace_right", "right", "later", "Pan to later times."),
        _added("trace_page_left", "pageup", "page earlier", "Pan by a whole span."),
        _added("trace_page_right", "pagedown", "page later", "Pan by a whole span to later times."),
        _added("trace_up", "up,k", "up", "Select the row above."),
        _added("trace_down", "down,j", "down", "Select the row below."),
        _added("trace_previous", "comma,shift+left", "previous call", "Select the previous call of the row."),
        _added("trace_next", "full_stop,shift+right", "next call", "Select the next call of the row."),
        _added("trace_center", "enter", "center", "Center the selected call, in a span that fits it and its work."),
        _added(
            "trace_prior", "backspace", "previous", "Show the previous trace of the recording.", 2, replay_only=True
        ),
        _added("trace_following", "N", "next", "Show the next trace of the recording.", 3, replay_only=True),
    ),
    *_GO_TO,
    _added("trace_export", "E", "export", "Write the span to a file for Perfetto.", 13),
    *_PROBE_SCREEN_ACTIONS,
)


WATCH_ACTIONS = (
    *_in(Group.RUN, _added("watch_all_off", "x", "all off", "Switch all aggressors beside the program off.", 6, True)),
    *_in(
        Group.LOOK,
        _added("watch_pause", "p", "pause", "Pause or resume the view. The program keeps running.", 4),
        _added("watch_back", "left", "-5 s", "Go 5 seconds back in the recording.", 4, replay_only=True),
        _added("watch_forward", "right", "+5 s", "Go 5 seconds forward in the recording.", 5, replay_only=True),
        _added(
            "watch_freeze",
            "t",
            "freeze on stall",
            "Freeze the view when a call takes longer than the setting freeze_above_ms, and keep its trace.",
            5,
            True,
        ),
        _added(
            "watch_explain",
            "e,enter",
            "explain",
            "Explain the selected line or call: what it costs, its slow calls, and what helps.",
            8,
        ),
        _added("watch_up", "up,k", "up", "Select the line or row above."),
        _added("watch_down", "down,j", "down", "Select the line or row below."),
        _added("watch_page_up", "pageup", "page up", "Go one page up."),
        _added("watch_page_down", "pagedown", "page down", "Go one page down."),
        _added("watch_worst", "w", "worst", "Select the call that lost most time.", 12),
        _added("watch_output", "O", "output", "Enlarge the pane of the program's output, or reduce it.", 11),
        _added(
            "watch_beside",
            "b",
            "beside",
            "Show what aggressors beside the program did to its steps, in place of the slow calls, or the slow calls.",
            14,
        ),
        _added("watch_kernels", "K", "kernels", "Show the kernels in place of the slow calls, or the slow calls.", 13),
    ),
    *_GO_TO,
    _COPY,
    *(action for action in _EVERYWHERE if action.name != "quit"),
    _added("watch_quit", "q", "quit", "Quit. A program that still runs is ended, after a question.", 2),
)

PROCESSES_ACTIONS = (
    *_in(
        Group.RUN,
        _added(
            "attach", "enter", "attach", "Attach the selected process: show its CUDA calls and what they wait for.", 4
        ),
    ),
    *_in(
        Group.LOOK,
        _added("process_up", "up,k", "up", "Select the process above."),
        _added("process_down", "down,j", "down", "Select the process below."),
        _added("process_page_up", "pageup", "page up", "Go one page up."),
        _added("process_page_down", "pagedown", "page down", "Go one page down."),
        _added("process_first", "home", "first", "Select the first process."),
        _added("process_last", "end", "last", "Select the last process."),
    ),
    *_GO_TO,
    *(action for action in _EVERYWHERE if action.name != "quit"),
    _added("processes_quit", "q", "quit", "Quit.", 2),
)

# Names of the monitor's actions that the demo has too, in addition to _RESTART and _EVERYWHERE.
_DEMO_SHARED = ("explain", "focus_up", "focus_down", "follow", "copy")
DEMO_ACTIONS = (
    *_in(
        Group.RUN,
        _added("demo_next", "right", "next", "Go to the next step of the demo.", 4, True),
        _added("demo_back", "left,backspace", "previous", "Go to the previous step.", 5, True),
        _added("demo_pause", "p", "pause", "Pause or resume the demo. The probes keep running.", 6, True),
        _added("demo_end", "end", "results", "End the demo here, and show what was found.", 7, True),
        _added("demo_page_up", "pageup", "page up", "Show the page before of what was found.", 0, True),
        _added("demo_page_down", "pagedown", "page down", "Show the next page of what was found.", 0, True),
    ),
    *(action for action in MONITOR_ACTIONS if action.name in _DEMO_SHARED),
    _RESTART,
    *_EVERYWHERE,
)

# Actions by screen; the name of a screen is also its folder and its style sheet.
SCREENS: Mapping[str, tuple[Action, ...]] = {
    "monitor": MONITOR_ACTIONS,
    "patterns": PATTERNS_ACTIONS,
    "matrix": MATRIX_ACTIONS,
    "timeline": TIMELINE_ACTIONS,
    "watch": WATCH_ACTIONS,
    "processes": PROCESSES_ACTIONS,
    "demo": DEMO_ACTIONS,
}
# Title of each screen in the help, in the list of views on the screen's first line, and in messages that name a view.
# The demo is no view, and its title is only in the help.
TITLES: Mapping[str, str] = {
    "monitor": "Live",
    "patterns": "Patterns",
    "matrix": "Check",
    "timeline": "Timeline",
    "processes": "Processes",
    "watch": "Program",
    "demo": "Demo",
}

# Labels of keys by Textual's names.
_KEY_LABELS = {
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "escape": "esc",
    "shift+tab": "shift-tab",
    "shift+left": "shift-←",
    "shift+right": "shift-→",
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
    """The actions among ``actions`` that are available live, or in a replay."""
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
    actions: Sequence[Action], changed: Mapping[str, str], ascii_only: bool = False
) -> tuple[tuple[str, str, str], ...]:
    """The key bar's entries (key, title, Textual's call) by rank."""
    ranked = sorted((action for action in actions if action.rank), key=lambda action: action.rank)
    return tuple((key_label(keys_of(action, changed), ascii_only), action.title, action.call) for action in ranked)


def help_lines(
    actions: Sequence[Action], changed: Mapping[str, str], ascii_only: bool = False
) -> dict[Group, list[tuple[str, str, str]]]:
    """The lines of the help by group: (keys, words, Textual's call); two actions of opposite directions share one."""
    by_name = {action.name: action for action in actions}
    seconds = {_PAIRS[name] for name in by_name if name in _PAIRS}
    lines: dict[Group, list[tuple[str, str, str]]] = {group: [] for group in Group}
    for action in actions:
        if action.name in seconds:
            continue
        both = (action, by_name[_PAIRS[action.name]]) if _PAIRS.get(action.name) in by_name else (action,)
        keys = [keys_of(member, changed).split(",") for member in both]
        # The first keys of both before their other ones: ``↑ ↓ k j``.
        texts = [
            key_label(key, ascii_only) for place in zip(*keys, strict=False) for key in place if key != "equals_sign"
        ]
        lines[action.group].append((" ".join(texts), action.short_text, action.call))
    return lines
