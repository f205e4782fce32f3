"""Dialogs of the matrix screen: one cell with all that is known about it, and all differences between two checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll

from stallprobes.catalog import entries
from stallprobes.matrix.matrix import PHASES
from stallprobes.model import Channel
from stallprobes.patterns.naming import entry_name
from stallprobes.units import duration
from stallprobes.wording import comparison_wording
from stallscope.tui.common.dialog import Dialog, TextDialog, section
from stallscope.tui.common.histograms import Histograms, PlotsView
from stallscope.tui.common.printable_text import PrintableStatic, PrintableText
from stallscope.tui.matrix.cell_text import histograms, paragraphs
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.view_model import Key, MatrixView

PANEL = 12


class CellScreen(Dialog[None]):
    """Shows the cell ``key`` of the current matrix, which ``get_view`` returns; a running check changes it.

    ``step`` selects the next cell on the left (-1) or right (1) and returns its key.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "close", "close"),
        Binding("left", "step(-1)", "left"),
        Binding("right", "step(1)", "right"),
    ]

    def __init__(self, get_view: Callable[[], MatrixView | None], key: Key, step: Callable[[int], Key]) -> None:
        super().__init__()
        self.get_view = get_view
        self.key = key
        self.step = step
        self._drawn: tuple[object, Key] | None = None

    def compose(self) -> ComposeResult:
        """The histograms, and the text below."""
        with Vertical(id="box"):
            yield Histograms(id="histograms")
            with VerticalScroll(id="scroll"):
                yield PrintableStatic(id="text")

    def on_mount(self) -> None:
        """Set the style and start the timer."""
        self.add_class("wide")
        self.query_one("#scroll").focus()
        self.set_interval(0.25, self.tick)
        self.call_after_refresh(self.tick)

    def action_step(self, by: int) -> None:
        """Show the next cell."""
        self.key = self.step(by)
        self.tick()

    def tick(self) -> None:
        """Draw what changed."""
        matrix_view = self.get_view()
        if matrix_view is None:
            return
        now = (matrix_view.matrix.cells.get(self.key), self.key)
        if now == self._drawn:
            return
        self._drawn = now
        panel = self.query_one(Histograms)
        panel.view = PlotsView(histograms(matrix_view, self.key))
        panel.display = panel.view.focus is not None
        panel.styles.height = min(PANEL, max(6, self.size.height // 2 - 2))
        self.query_one("#text", PrintableStatic).show(explanation(matrix_view, self.key))


def explanation(matrix_view: MatrixView, key: Key) -> PrintableText:
    """Everything known about a cell: verdicts, remedy, percentiles, how it was measured, what both probes do."""
    text = PrintableText()
    first, *others = paragraphs(matrix_view, key)
    text.append(first[0], "bold reverse")
    text.append(f"  {first[2]}\n\n", "bold")
    for title, _, body in others:
        if title:
            section(text, title, body)
        else:
            text.append(f"{body}\n\n")
    _append_percentiles(text, matrix_view, key)
    _append_measurement(text, matrix_view, key)
    row, column = matrix_view.matrix.row(key[0]), matrix_view.matrix.column(key[1])
    for name in dict.fromkeys((row.entry, *(entry_name(name) for name in column.aggressors))):
        entry = entries().get(name)
        if entry is not None:
            section(text, entry.title, entry.what)
    return text


def _append_percentiles(text: PrintableText, matrix_view: MatrixView, key: Key) -> None:
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.channels:
        return
    lines = []
    for phase in PHASES:
        for name, channels in (("now", cell.channels), ("base", cell.baseline)):
            histogram = channels.get(Channel(phase))
            if histogram is None or not histogram.count:
                continue
            p50, p99 = histogram.percentile(50), histogram.percentile(99)
            values = "  ".join(
                f"{label} {duration(None if ns is None else ns / 1000):>8}"
                for label, ns in (("p50", p50), ("p99", p99), ("max", histogram.max_ns))
            )
            lines.append(f"{phase!s:<5}{name:<6} {values}  {histogram.count:>6} calls")
    if lines:
        section(text, "Percentiles", "\n".join(lines))


def _append_measurement(text: PrintableText, matrix_view: MatrixView, key: Key) -> None:
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.repeats:
        return
    hosts = [repeat.host for repeat in cell.repeats if repeat.host]
    where = f" on {', '.join(hosts)}" if hosts else ""
    several = "" if len(cell.repeats) == 1 else "s"
    section(
        text,
        "Measurement",
        f"{cell.iterations} calls in {len(cell.repeats)} repeat{several}{where}, "
        f"{duration(cell.seconds * 1e6)} in total; "
        "baseline just before and after each.",
    )


class Differences(TextDialog[None]):
    """Shows the fingerprints' differences, the number of changed cells, and cells that only one check has."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "close", "close")]

    def __init__(self, state: MatrixState) -> None:
        super().__init__()
        self.state = state

    def text(self) -> PrintableText:
        """Fingerprints, counts, cells."""
        text, found = PrintableText(), self.state.comparison
        assert found is not None
        now = self.state.origin or "this check"
        section(text, "QuantileChange", f"{self.state.against} → {now}")
        section(
            text,
            "Differences of the fingerprints",
            "\n".join(map(comparison_wording.difference_line, found.differences)) or "none",
        )
        rate = f"Of comparisons without a change at most {found.false_alarm_rate:.0%} have a SLOWER or FASTER cell."
        section(text, "Cells", f"{comparison_wording.change_counts(found)}. {rate}")
        for title, there in (("Only in the old check", found.only_old), ("Only in the new check", found.only_new)):
            section(text, title, "\n".join(comparison_wording.places_by_column(there)))
        return text
