"""What there is to say about one cell of a check, and about a comparison: sentences, and the cell's histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stallprobes.live.view_model import ChannelView, FocusView
from stallprobes.live.view_model import ProbeRow as Line
from stallprobes.matrix.matrix import PHASES, QUIET
from stallprobes.model import Channel, Role
from stallprobes.units import duration, times
from stallscope.tui.matrix.view_model import CHANGE_STYLES, STYLES, Figures, Key, MatrixView

if TYPE_CHECKING:
    from stallprobes.matrix.compare import CellChange, Comparison

Passage = tuple[str, str, str]

_STATES = {
    "stalled": "STALLED",
    "starved": "STARVED",
    "failed": "FAILED",
    "host": "host noise",
    "unsupported": "not possible here",
    "missing": "not measured",
}
_IN_FLIGHT_US = 100_000


def passages(matrix_view: MatrixView, key: Key, brief: bool = False) -> list[Passage]:
    """What there is to say about a cell: (title, style of the title, text), the most important first.

    ``brief`` leaves out who is beside whom where the first sentence says so.
    """
    cell = matrix_view.matrix.cells.get(key)
    kind = "missing" if cell is None else cell.kind
    out = [(_STATES.get(kind, kind), STYLES.get(kind, ""), _beside(matrix_view, key))]
    change = matrix_view.changes.get(key)
    if change is not None:
        out.append((str(change.change).upper(), CHANGE_STYLES[str(change.change)], _change_words(change)))
    if cell is None or kind == "missing":
        out.append(("", "", "Not measured yet." if cell is None else cell.reason or "Not measured."))
        return out
    if cell.reason:
        out.append(("Why", "strong", cell.reason))
    told = [one for one in sorted(cell.verdicts, key=lambda one: one.kind.severity, reverse=True) if one.kind.severity]
    if brief and told and len(out) == 1:
        out = [(out[0][0], out[0][1], told[0].sentence)]
        out += [("", "", one.sentence) for one in told[1:]]
    else:
        out += [("", "", one.sentence) for one in told]
    out += [("What helps", "strong", one) for one in dict.fromkeys(one.remedy for one in told if one.remedy)]
    if not told:
        plain = _plain(matrix_view.figures[key])
        if plain:
            out.append(("", "", plain))
    if cell.in_flight_us is not None and cell.in_flight_us >= _IN_FLIGHT_US:
        out.append(("In flight", "bad", f"{cell.in_flight_op}, for {duration(cell.in_flight_us)} at a window's end."))
    return out


def _beside(matrix_view: MatrixView, key: Key) -> str:
    row, column = matrix_view.matrix.row(key[0]), matrix_view.matrix.column(key[1])
    return f"{row.title} beside nothing" if column.name == QUIET else f"{row.title} beside “{column.title}”"


def _plain(known: Figures) -> str:
    """The figures of a cell on which there is no verdict."""
    words = []
    for phase, part in known.parts.items():
        if 50 not in part.now_us:
            continue
        ratio = part.times(50)
        if ratio is None:
            words.append(f"{phase} p50 {duration(part.now_us[50])}, p99 {duration(part.now_us.get(99))}")
        else:
            words.append(
                f"{phase} p50 {duration(part.quiet_us[50])} → {duration(part.now_us[50])} ({times(ratio)}), "
                f"p99 {duration(part.quiet_us.get(99))} → {duration(part.now_us.get(99))}"
            )
    return "; ".join(words) + "." if words else ""


def _change_words(change: CellChange) -> str:
    """What changed in which figure, and why one cannot be told."""
    words = []
    if change.newly_starved:
        words.append("It starves now and did not before.")
    if change.no_longer_starved:
        words.append("It starved before and does not any more.")
    if change.note:
        words.append(change.note)
    for part in change.parts:
        if str(part.change) == "same" and str(change.change) != "same":
            continue
        ratio = "" if part.ratio is None else f" ({times(part.ratio)})"
        name = f"{part.channel.phase} of {part.channel.label}" if part.channel.label else str(part.channel.phase)
        figures = f"{duration(part.old_us)} → {duration(part.new_us)}{ratio}"
        words.append(f"{name} {part.quantile} {str(part.change).upper()}: {part.why or figures}".rstrip(".") + ".")
    return " ".join(words)


def histograms(matrix_view: MatrixView, key: Key) -> FocusView | None:
    """Call and wait of a cell with its quiet behind them, None where nothing was measured."""
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.repeats:
        return None
    known = matrix_view.figures[key]
    worst = cell.worst
    channels = [Channel(phase) for phase in PHASES if Channel(phase) in cell.channels]
    style = STYLES.get(known.kind, "")
    return FocusView(
        Line(
            name=cell.row,
            title=_beside(matrix_view, key),
            role=Role.VICTIM,
            on=True,
            state=_STATES.get(known.kind, known.kind),
            mark="good" if known.kind == "quiet" else style,
            ratio=None if worst is None else worst.ratio,
            in_flight_us=cell.in_flight_us if (cell.in_flight_us or 0.0) >= _IN_FLIGHT_US else None,
        ),
        tuple(
            ChannelView(channel.phase, "", cell.channels[channel], cell.baseline.get(channel)) for channel in channels
        ),
    )


def told(value: object) -> str:
    """A value of a fingerprint in words."""
    if value is None:
        return "not known"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {told(one)}" for key, one in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(told(one) for one in value) or "none"
    return str(value)


def differences(comparison: Comparison) -> Sequence[str]:
    """What differs between the two fingerprints, a line each."""
    return [f"{one.key.replace('_', ' ')}: {told(one.old)} → {told(one.new)}" for one in comparison.differences]


def tally(comparison: Comparison) -> str:
    """How many cells changed in which way, and how often that is a false alarm."""
    counts = {str(change): number for change, number in comparison.counts().items()}
    parts = [f"{counts[word]} {word.upper()}" for word in reversed(list(CHANGE_STYLES)) if counts.get(word)]
    for number, words in ((len(comparison.only_old), "only in the old one"), (len(comparison.only_new), "new")):
        if number:
            parts.append(f"{number} {words}")
    return ", ".join(parts) or "no cell in common"
