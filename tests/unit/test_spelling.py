"""The names that errors suggest."""

from __future__ import annotations

import pytest

from stallprobes.spelling import nearest

KNOWN = ("second-process", "secondary-context-d2d", "secondary", "launch-all", "launch")


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("secondary-c", KNOWN, "secondary-context-d2d"),
        ("secondary", KNOWN[:2], "secondary-context-d2d"),
        ("laun", KNOWN, "launch"),
        ("lanuch", KNOWN, "launch"),
        ("l", KNOWN, None),
        ("", KNOWN, None),
        ("zzz", KNOWN, None),
        ("launch", (), None),
    ],
)
def test_a_name_that_begins_so_comes_before_one_spelled_alike(
    name: str, known: tuple[str, ...], found: str | None
) -> None:
    assert nearest(name, known) == found
