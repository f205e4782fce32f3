"""One cell of a check: its histograms with quiet behind them, and all that is to be said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from stallprobes.catalog import entries
from stallprobes.matrix.matrix import PHASES
from stallprobes.model import Channel
from stallprobes.units import duration
from stallscope.tui.common.dialog import Dialog, section
from stallscope.tui.matrix.cell_text import histograms, passages
from stallscope.tui.matrix.view_model import Key, MatrixView
from stallscope.tui.monitor.histograms import Histograms

PANEL = 12


class CellScreen(Dialog[None]):
    """Shows the cell ``key`` of the sheet that ``look`` returns, also while it is still measured.

    Left and right go to the cells beside it: ``step`` takes -1 or 1 and returns the next cell's key.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "close", "close"),
        Binding("left", "step(-1)", "left"),
        Binding("right", "step(1)", "right"),
    ]

    def __init__(self, look: Callable[[], MatrixView | None], key: Key, step: Callable[[int], Key]) -> None:
        super().__init__()
        self.look = look
        self.key = key
        self.step = step
        self._shown: tuple[object, Key] | None = None

    def compose(self) -> ComposeResult:
        """The panel of the monitor, and the text below it."""
        with Vertical(id="box"):
            yield Histograms(id="shape")
            with VerticalScroll(id="scroll"):
                yield Static(id="text")

    def on_mount(self) -> None:
        """Begin to look."""
        super().on_mount()
        self.add_class("wide")
        self.query_one(Histograms).now = "beside it"
        self.query_one("#scroll").focus()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.query_one(Histograms).repaint())
        self.set_interval(0.25, self.tick)
        self.call_after_refresh(self.tick)

    def action_step(self, by: int) -> None:
        """Go to the cell beside this one."""
        self.key = self.step(by)
        self.tick()

    def tick(self) -> None:
        """Draw what changed."""
        matrix_view = self.look()
        if matrix_view is None:
            return
        now = (matrix_view.matrix.cells.get(self.key), self.key)
        if now == self._shown:
            return
        self._shown = now
        panel = self.query_one(Histograms)
        panel.view = histograms(matrix_view, self.key)
        panel.display = panel.view is not None
        panel.styles.height = min(PANEL, max(6, self.size.height // 2 - 2))
        self.query_one("#text", Static).update(explanation(matrix_view, self.key))
        self.call_after_refresh(panel.repaint)


def explanation(matrix_view: MatrixView, key: Key) -> Text:
    """All that is known of a cell: verdicts, what helps, figures, how it was measured, what both probes do."""
    text = Text()
    first, *others = passages(matrix_view, key)
    text.append(first[0], "bold reverse")
    text.append(f"  {first[2]}\n\n", "bold")
    for title, _, body in others:
        if title:
            section(text, title, body)
        else:
            text.append(f"{body}\n\n")
    _figures(text, matrix_view, key)
    _measured(text, matrix_view, key)
    row, column = matrix_view.matrix.row(key[0]), matrix_view.matrix.column(key[1])
    for name in dict.fromkeys((row.entry, *(_entry(name) for name in column.aggressors))):
        entry = entries().get(name)
        if entry is not None:
            section(text, entry.title, entry.what)
    return text


def _figures(text: Text, matrix_view: MatrixView, key: Key) -> None:
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.channels:
        return
    lines = []
    for phase in PHASES:
        for words, channels in (("now", cell.channels), ("quiet", cell.baseline)):
            seen = channels.get(Channel(phase))
            if seen is None or not seen.count:
                continue
            p50, p99 = seen.percentile(50), seen.percentile(99)
            figures = "  ".join(
                f"{name} {duration(None if ns is None else ns / 1000):>8}"
                for name, ns in (("p50", p50), ("p99", p99), ("max", seen.max_ns))
            )
            lines.append(f"{phase!s:<5}{words:<6} {figures}  {seen.count:>6} calls")
    if lines:
        section(text, "Figures", "\n".join(lines))


def _measured(text: Text, matrix_view: MatrixView, key: Key) -> None:
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.repeats:
        return
    hosts = [repeat.host for repeat in cell.repeats if repeat.host]
    where = f" on {', '.join(hosts)}" if hosts else ""
    several = "" if len(cell.repeats) == 1 else "s"
    section(
        text,
        "How it was measured",
        f"{cell.iterations} calls in {len(cell.repeats)} repeat{several}{where}, "
        f"{duration(cell.seconds * 1e6)} in all; "
        "quiet just before and after each.",
    )


def _entry(name: str) -> str:
    """The catalogue's name in ``ENTRY@CONTEXT/STREAM``."""
    return name.partition("/")[0].partition("@")[0]
