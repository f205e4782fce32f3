"""Actions of all screens, from ``actions.txt``: key bindings, key bar, palette, help and the settings file use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path

# Keys that switch the aggressors on and off, in their order in the table.
AGGRESSOR_KEYS = "1234567890"
# Keys that select the victims, in their order in the table.
VICTIM_KEYS = "abcdfiz"
# Key that selects the host control: the probe of the host's noise, without CUDA.
HOST_KEY = "h"
# Rank of the help key in the key bar, which shows low ranks first and leaves out high ranks on a narrow screen.
HELP_RANK = 3


class Group(StrEnum):
    """Group of actions in the help; the value is its heading."""

    RUN = "RUN"
    LOOK = "LOOK"
    GO_TO = "GO TO"
    OTHER = "OTHER"


@dataclass(frozen=True)
class Action:
    """One action of a screen, a line of ``actions.txt``.

    ``title`` is the text of the key bar, ``rank`` the position there, 0 for not there. ``marks`` are explained in the
    file. ``call`` is the action as Textual calls it, ``short_text`` the few words of the help.
    """

    name: str
    keys: str
    title: str
    rank: int
    marks: frozenset[str]
    call: str
    short_text: str
    description: str
    group: Group

    @property
    def opens_screen(self) -> bool:
        """True if the action opens the screen of its name."""
        return "opens" in self.marks

    @property
    def at_once(self) -> bool:
        """True if the action needs no data that its screen reads when it opens."""
        return not self.marks.isdisjoint(("now", "opens"))

    def available(self, replayed: bool) -> bool:
        """True if the action makes sense live, or in a replay."""
        return ("live" if replayed else "replay") not in self.marks


def _sections() -> dict[str, tuple[Action, ...]]:
    """The sections of ``actions.txt``."""
    sections: dict[str, tuple[Action, ...]] = {}
    known: dict[str, Action] = {}
    section, group = "", Group.OTHER
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        name, *cells = (cell.strip() for cell in line.split("|"))
        if name.startswith("["):
            section, group = name.strip("[]"), Group.OTHER
            sections[section] = ()
        elif name.startswith("= "):
            shared = name.removeprefix("= ")
            sections[section] += sections.get(shared) or (known[shared],)
        elif section and cells:
            keys, title, rank, marks, call, words, description = cells
            call = call or (f"open('{name}')" if "opens" in marks else name)
            known[name] = Action(
                name, keys, title, int(rank or 0), frozenset(marks.split()), call, words or title, description, group
            )
            sections[section] += (known[name],)
        elif section and name:
            group = Group(name)
    return sections


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

# Actions by screen; the name of a screen is also its folder and its style sheet.
SCREENS: Mapping[str, tuple[Action, ...]] = {name: actions for name, actions in _sections().items() if name in TITLES}

# Labels of keys by Textual's names, where that is not the character of the key or its name.
_KEY_LABELS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "plus": "+",
    "minus": "-",
    "slash": "/",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
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
    from textual.keys import key_to_character

    first = keys.split(",")[0].strip()
    base = first.removeprefix("shift+")
    label = _KEY_LABELS.get(base) or key_to_character(base) or base
    label = label if label.isprintable() and label.strip() else base
    label = label if base == first else f"shift-{label}"
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
    lines: dict[Group, list[tuple[str, str, str]]] = {group: [] for group in Group}
    for action, after in zip(actions, (*actions[1:], None), strict=True):
        if "second" in action.marks:
            continue
        both = (action, after) if after is not None and "second" in after.marks else (action,)
        keys = [keys_of(member, changed).split(",") for member in both]
        # The first keys of both before their other ones: ``↑ ↓ k j``.
        texts = [
            key_label(key, ascii_only) for place in zip(*keys, strict=False) for key in place if key != "equals_sign"
        ]
        lines[action.group].append((" ".join(texts), action.short_text, action.call))
    return lines
