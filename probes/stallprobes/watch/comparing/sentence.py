"""Sentences about a comparison of watched runs, which text, page and JSON share."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.matrix.comparing.comparison import Change
from stallprobes.units import duration_ns, plural
from stallprobes.watch.comparing.comparison import ItemChange, RunsComparison, RunsSide, Sort
from stallprobes.watch.comparing.measures import OPERATIONS, WorkUnit
from stallprobes.watch.comparing.spread import LEAST_RUNS
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.reading.kernel_names import kernel_label

# Share of the largest change in time from which a place of waits is named rather than a line, a kernel or a part.
_MOST_OF_CHANGE = 0.5
# Largest time of an item, as a share of what it was, that counts as gone.
GONE = 0.02
# Words before the change of an item.
_BEGINS = {
    Sort.WAIT: "waits at ",
    Sort.LINE: "the cost of ",
    Sort.LAUNCH: "the kernels that ",
    Sort.KERNEL: "the kernel ",
    Sort.PART: "",
}
# Sorts of items that explain first what changed of a program that the GPU bounds.
_OF_GPU = (Sort.LAUNCH, Sort.KERNEL)
# Verdicts that a line of the host explains.
_OF_LINES = (
    Bound.HOST, Bound.SUBMISSION, Bound.WAIT, Bound.ALLOCATION, Bound.COPY, Bound.LOADING, Bound.INPUT, Bound.OWN_SLEEP,
    Bound.ASLEEP, Bound.THREAD, Bound.CHILD, Bound.LOCK,
)  # fmt: skip


def sentence(result: RunsComparison) -> str:
    """The first sentence: ``BETTER: a step takes 14.1 → 9.8 ms (−30 %); waits at train.py:42 in step are gone; now
    host-bound before train.py:31 in step.``"""
    word = result.change.look.word
    if result.ratio is None:
        return f"{word}: the speed cannot be compared. {result.why}"
    parts = [f"{word}: {change_text(result)}"]
    main = main_item(result)
    if main is not None:
        parts.append(item_text(main))
    parts.append(verdict_text(result))
    text = "; ".join(part for part in parts if part) + "."
    return f"{text} {result.why}" if result.why else text


def change_text(result: RunsComparison) -> str:
    """The change of the time of a step: ``a step takes 14.1 ms → 9.80 ms (−30 %, ± 4)``."""
    unit = f"{OPERATIONS} operations take" if result.operations else "a step takes"
    if result.unit is WorkUnit.KERNELS and not result.operations:
        unit = "the work of a step takes"
    assert result.ratio is not None
    figure = f"{100 * (result.ratio - 1):+.0f} %".replace("-", "−").replace("+0 %", "0 %").replace("−0 %", "0 %")
    if not 0.05 < result.ratio < 3:
        figure = f"×{result.ratio:.2g}"
    elif result.low is not None and result.high is not None:
        figure += f", ± {max(50 * (result.high - result.low), 1):.0f}"
    old, new = duration_ns(result.old.mean_ns), duration_ns(result.new.mean_ns)
    # Of one unit the first is left out.
    old = old.split()[0] if old.split()[-1] == new.split()[-1] else old
    return f"{unit} {old} → {new} ({figure})"


def main_item(result: RunsComparison) -> ItemChange | None:
    """The item that explains the change best; None if there is none, or no change."""
    if result.change is Change.SAME or result.ratio is None:
        return None
    direction = Change.WORSE if result.ratio > 1 else Change.BETTER
    items = [item for item in result.items if item.change is direction]
    if not items:
        return None
    # Other kernels may do the work of one that is gone.
    whole = [item for item in items if item.sort is not Sort.KERNEL] or items
    largest = max(abs(item.saved_ns) for item in whole)
    large = [item for item in items if abs(item.saved_ns) >= _MOST_OF_CHANGE * largest]
    slower = result.new if direction is Change.WORSE else result.old
    # Of a program that the GPU bounds, lines show where it waits for that.
    order = [*_OF_GPU, *Sort] if Bound.GPU in slower.verdicts[:1] else list(Sort)
    return min(large, key=lambda item: (order.index(item.sort), -abs(item.saved_ns)))


def item_text(item: ItemChange) -> str:
    """What changed of an item: ``waits at train.py:42 in step are gone``, ``copies 3.10 ms → 1.20 ms``."""
    name = kernel_label(item.name) if item.sort is Sort.KERNEL else item.name
    name = f"{name} launches" if item.sort is Sort.LAUNCH else name
    if item.sort is Sort.WAIT and item.new_ns <= GONE * item.old_ns:
        return f"waits at {name} are gone"
    if item.old_ns <= GONE * item.new_ns:
        return f"{_BEGINS[item.sort]}{name} {duration_ns(item.new_ns)}, which is new"
    if item.new_ns <= GONE * item.old_ns:
        return f"{_BEGINS[item.sort]}{name} {duration_ns(item.old_ns)}, which is gone"
    return f"{_BEGINS[item.sort]}{name} {duration_ns(item.old_ns)} → {duration_ns(item.new_ns)}"


def verdict_text(result: RunsComparison) -> str:
    """The verdict: ``now host-bound before train.py:31 in step``, or ``still GPU-bound``; "" if it is not known."""
    old, new = result.old, result.new.verdicts
    if not new or new[0] is Bound.UNKNOWN:
        return ""
    word = "still " if new[0] in old.verdicts else "" if new[0] in old.seconds else "now "
    return f"{word}{bound_text(result.new)}"


def bound_text(side: RunsSide) -> str:
    """What bounds one side: ``host-bound before train.py:31 in step``."""
    if not side.verdicts:
        return ""
    place = f" {'before' if side.before else 'at'} {side.line}" if side.line and side.verdicts[0] in _OF_LINES else ""
    return " or ".join(bound.word for bound in side.verdicts) + place


def spread_text(result: RunsComparison) -> str:
    """Which change would have been seen, and how the spread is known; "" where nothing was compared."""
    if result.detectable is None:
        return ""
    seen = f"A change above ×{result.detectable:.2f} (or below ×{1 / result.detectable:.2f}) is seen"
    if result.measured:
        return (
            f"{seen}, by the spread of {plural(result.old.runs, 'old run')} and {plural(result.new.runs, 'new run')}. "
            "A drift of the machine looks like a change: make the runs of both by turns."
        )
    return (
        f"{seen}: processes of one program differ by ×0.85 to ×1.2, and there are not {LEAST_RUNS} runs of each to "
        "measure it (watch --save)."
    )


def side_lines(result: RunsComparison) -> Iterator[tuple[str, RunsSide]]:
    """Both sides with their names."""
    yield "OLD", result.old
    yield "NEW", result.new
