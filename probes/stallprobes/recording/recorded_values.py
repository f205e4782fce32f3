"""Values of a recording's lines: lists with named items, phases, and texts, which every reader of a line uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stallprobes.files.json_reader import Node
from stallprobes.recording.recording_format import LONGEST_TEXT, MOST_ITEMS

# 146 years.
LONGEST_NS = 2**62


def member(node: Node, key: str) -> Node:
    """The member ``key`` of an object."""
    return node.some(key)[key]


def optional_items(members: Mapping[str, Node], key: str) -> Sequence[Node]:
    """The items of the list that the member ``key`` is; none without it."""
    return members[key].items(MOST_ITEMS) if key in members else ()


def record(node: Node, names: Sequence[str]) -> dict[str, Node]:
    """The items of a list that has exactly one for each of ``names``, by name."""
    if type(node.value) is not list or len(node.value) != len(names):
        raise node.wrong(f"is not a list of {len(names)}: {', '.join(names)}")
    return {name: node.field(name, value) for name, value in zip(names, node.value, strict=True)}


def integers(node: Node, limits: Mapping[str, tuple[int, int]]) -> tuple[int, ...]:
    """The items of a list that has exactly one integer for each of ``limits``, within it."""
    value = node.value
    if (
        type(value) is list
        and len(value) == len(limits)
        and all(
            type(each) is int and low <= each <= high for each, (low, high) in zip(value, limits.values(), strict=True)
        )
    ):
        return tuple(value)
    # Finds what is wrong, and says where: a node for each item takes longer than the checks.
    one = record(node, tuple(limits))
    return tuple(each.whole(*limit) for each, limit in zip(one.values(), limits.values(), strict=True))


def text(node: Node) -> str:
    """A string without control characters."""
    return node.text(LONGEST_TEXT)
