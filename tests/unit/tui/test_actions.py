"""The table of keys: what a key means on one screen it means on all."""

from __future__ import annotations

from collections import defaultdict

import pytest

from stallscope.tui.actions import (
    AGGRESSOR_KEYS,
    HOST_KEY,
    SCREENS,
    TITLES,
    VICTIM_KEYS,
    Group,
    available,
    help_lines,
    key_hints,
)
from stallscope.tui.common.help import sections

# Keys that move, open, run, stop or scale whatever their screen shows.
SCREENS_OWN = {
    *("up", "down", "k", "j", "left", "right", "pageup", "pagedown", "home", "end", "enter"),
    *("x", "r", "plus", "equals_sign", "minus"),
}
# The lines of a help in a terminal of 24 lines, without those around the groups, and the columns in one of 80: of its
# keys, and of both columns together.
PAGE, KEYS_COLUMNS, PAGE_COLUMNS = 17, 10, 70


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("replayed", [False, True], ids=["live", "replayed"])
def test_no_key_has_two_actions_on_a_screen(name: str, replayed: bool) -> None:
    keys = [key for one in available(replayed, SCREENS[name]) for key in one.keys.split(",")]
    if name in ("monitor", "demo"):
        keys += [*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY]
    elif name == "timeline":
        keys += AGGRESSOR_KEYS
    assert len(set(keys)) == len(keys)


def test_each_key_has_one_word_on_all_screens() -> None:
    words: dict[str, set[str]] = defaultdict(set)
    for actions in SCREENS.values():
        for one in actions:
            for key in one.keys.split(","):
                words[key].add(one.title)
    assert {key: titles for key, titles in words.items() if key not in SCREENS_OWN and len(titles) > 1} == {}


@pytest.mark.parametrize("name", SCREENS)
def test_the_keys_of_a_screen_fit_on_one_page_of_help(name: str) -> None:
    lines = help_lines(SCREENS[name], {})
    above = max(len(lines[Group.RUN]), len(lines[Group.LOOK]))
    below = max(len(lines[Group.GO_TO]), len(lines[Group.OTHER]))
    assert above + below <= PAGE


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("ascii_only", [False, True], ids=["blocks", "ascii"])
def test_no_line_of_the_help_is_cut_in_80_columns(name: str, ascii_only: bool) -> None:
    lines = help_lines(SCREENS[name], {}, ascii_only)
    widths = {
        group: max((max(KEYS_COLUMNS, len(keys) + 1) + len(words) for keys, words, _ in lines[group]), default=0)
        for group in Group
    }
    left, right = max(widths[Group.RUN], widths[Group.GO_TO]), max(widths[Group.LOOK], widths[Group.OTHER])
    assert left + right <= PAGE_COLUMNS, widths


@pytest.mark.parametrize("name", [name for name in SCREENS if name != "demo"])
def test_the_way_back_is_the_first_key_of_each_key_bar(name: str) -> None:
    assert key_hints(SCREENS[name], {})[0][:2] == ("esc", "back")


def test_each_screen_has_a_title_and_says_how_to_read_it() -> None:
    assert set(TITLES) == set(SCREENS)
    for name in SCREENS:
        assert all(title and text for title, text in sections(name))
        assert sections(name)
    assert sections("demo")[1:] == sections("monitor")
