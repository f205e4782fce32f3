"""One cell of a check: its text and histograms, and the dialog with all that is known about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll

from stallprobes.catalog import entries
from stallprobes.errors import StallprobesError
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.live.view_model import ChannelView, ProbeRow
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.matrix import PHASES, Cell, Status
from stallprobes.model import TIMELINE_PHASES, Channel, Phase, Role
from stallprobes.patterns.naming import entry_name
from stallprobes.units import duration_ns, plural, times
from stallprobes.verdicts.explanations import beside_aggressors
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording, reference_wording
from stallscope.tui.common.dialog import Dialog, section
from stallscope.tui.common.histograms import HistogramsView, histogram_lines
from stallscope.tui.common.lines import Line, Panel
from stallscope.tui.common.printable_text import PrintableStatic, PrintableText
from stallscope.tui.common.verdict_lines import explanation_lines, figures
from stallscope.tui.matrix.view_model import CellFigures, Key, MatrixView, kind_style

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Matrix
    from stallprobes.matrix.reference import Reference
    from stallprobes.verdicts.verdict import Verdict

# Title, its style, and the text of a paragraph.
Paragraph = tuple[str, str, str]
# Largest height (lines) of the histograms in the dialog about one cell (a victim beside an aggressor).
_MOST_HISTOGRAMS = 12


def paragraphs(matrix_view: MatrixView, key: Key, brief: bool = False) -> list[Paragraph]:
    """Everything known about a cell, the most important first.

    ``brief`` leaves out the names of victim and aggressor where the first verdict has them.
    """
    cell = matrix_view.matrix.cells.get(key)
    kind = Status.MISSING if cell is None else cell.kind
    out = [(kind.look.word, kind_style(kind), _cell_title(key))]
    if cell is None or kind is Status.MISSING:
        out.append(("", "", "Not measured yet." if cell is None else cell.reason or "Not measured."))
        return out
    if cell.reason:
        out.append(("Why", "strong", cell.reason))
    verdicts = [
        item for item in sorted(cell.verdicts, key=lambda item: item.kind.severity, reverse=True) if item.kind.severity
    ]
    if brief and verdicts and len(out) == 1:
        out = [(out[0][0], out[0][1], verdicts[0].sentence)]
        out += [("", "", verdict.sentence) for verdict in verdicts[1:]]
    else:
        out += [("", "", verdict.sentence) for verdict in verdicts]
    out += [("Remedy", "strong", remedy) for remedy in dict.fromkeys(part.remedy for part in verdicts if part.remedy)]
    if not verdicts:
        percentiles = _percentiles(matrix_view.figures[key])
        if percentiles:
            out.append(("", "", percentiles))
    in_flight = check_wording.in_flight(cell)
    if in_flight:
        out.append(("In flight", "bad", f"{in_flight} at the end of a window."))
    if not brief and matrix_view.reference is not None:
        reference = matrix_view.reference.reference
        text = _on_reference(reference, key)
        if text:
            out.append(("On other machines", "strong", f"{text}. {reference_wording.reference_title(reference)}."))
    return out


def _on_reference(reference: Reference, key: Key) -> str:
    """The cell on the reference, "" if it does not have the cell."""
    there = reference.by_place.get(key)
    return "" if there is None else reference_wording.reference_cell(there)


def _cell_title(key: Key) -> str:
    return f"{key[0]} beside {key[1]}"


def _percentiles(figures_of: CellFigures) -> str:
    """p50 and p99 of a quiet cell with those of its baseline."""
    words = []
    for phase, part in figures_of.items():
        if not part.ratios:
            p50, p99 = (duration_ns(part.now_ns.get(quantile)) for quantile in PERCENTILES)
            words.append(f"{phase} p50 {p50}, p99 {p99}")
            continue
        median, tail = (part.ratios[quantile] for quantile in PERCENTILES)
        words.append(
            f"{phase} p50 {duration_ns(median.baseline_ns)} → {duration_ns(median.now_ns)} ({times(median.ratio)}), "
            f"p99 {duration_ns(tail.baseline_ns)} → {duration_ns(tail.now_ns)}"
        )
    return "; ".join(words) + "." if words else ""


def histograms(matrix_view: MatrixView, key: Key) -> HistogramsView | None:
    """Call and wait of a cell, and what the timeline measured, with their baselines; None if nothing was measured."""
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.repeats:
        return None
    kind, worst = cell.kind, cell.worst
    shown = (*PHASES, *TIMELINE_PHASES) if matrix_view.matrix.timeline else PHASES
    # Most calls have no start before their return.
    channels = [
        one for one in map(Channel, shown) if one in cell.channels and (one.phase in PHASES or cell.channels[one].count)
    ]
    return HistogramsView(
        ProbeRow(
            _cell_title(key),
            Role.VICTIM,
            True,
            kind.look.word,
            kind.look.style,
            ratio=None if worst is None else worst.ratio,
            in_flight_ns=cell.in_flight_ns if cell.in_flight_ns and check_wording.in_flight(cell) else None,
        ),
        tuple(
            ChannelView(channel.phase, "", cell.channels[channel], cell.baseline.get(channel)) for channel in channels
        ),
        now="with aggressor",
    )


@dataclass(frozen=True)
class CellSummary:
    """The selected cell beside the block of symbols.

    ``figures`` has a text for each phase, the phase ``judged`` of the worst ``verdict`` first. ``elsewhere`` has the
    results of other machines, "" if unknown.
    """

    title: str
    state: str
    style: str
    figures: tuple[str, ...]
    verdict: Verdict | None
    judged: Phase | None
    plots: HistogramsView | None
    elsewhere: str
    paragraphs: tuple[Paragraph, ...]

    def explanation(self, width: int) -> list[Line]:
        """The cause and the remedy in a line each; of a verdict without short ones the begin of the long ones."""
        verdict = self.verdict
        if verdict is None:
            return []
        cause, remedy = verdict.short_cause or verdict.cause, verdict.short_remedy or verdict.remedy
        return explanation_lines(verdict.changed(short_cause=cause, short_remedy=remedy), width)


def summary(matrix_view: MatrixView, key: Key) -> CellSummary:
    """Summary of a cell, shown beside the block."""
    cell, shown = matrix_view.matrix.cells[key], matrix_view.figures.get(key)
    verdict = _explained(matrix_view.matrix, cell)
    judged = None if verdict is None else Phase.CALL if verdict.phase is Phase.DUE else verdict.phase
    texts, elsewhere = [], ""
    if not cell.status.measured:
        texts = [cell.reason or "Not measured yet."]
    elif shown is not None:
        medians = {phase: part.ratios.get(Quantile.P50) for phase, part in shown.items() if phase is not judged}
        texts = [] if verdict is None else [figures(verdict)]
        texts += [
            f"{phase.traits.word} {duration_ns(part.baseline_ns)} → {duration_ns(part.now_ns)}  {times(part.ratio)}"
            for phase, part in medians.items()
            if part is not None
        ]
        if matrix_view.reference is not None and (text := _on_reference(matrix_view.reference.reference, key)):
            elsewhere = f"on other machines: {text}"
    starved = cell.kind is VerdictKind.STARVED
    ratio = f" {times(verdict.ratio)}" if verdict is not None and verdict.ratio and not starved else ""
    return CellSummary(
        _cell_title(key),
        f"{cell.kind.look.word}{ratio}",
        kind_style(cell.kind),
        tuple(texts),
        verdict,
        judged,
        histograms(matrix_view, key),
        elsewhere,
        tuple(paragraphs(matrix_view, key, brief=True)),
    )


def _explained(matrix: Matrix, cell: Cell) -> Verdict | None:
    """The worst verdict of a cell, None if it is quiet; a stall from a file gets the short cause of the catalogue."""
    verdict = cell.worst
    if verdict is None or not verdict.kind.severity:
        return None
    if verdict.short_cause or not verdict.kind.is_stall:
        return verdict
    try:
        planned = plan((cell.row,), matrix.column(cell.column).aggressors)
    except StallprobesError:
        # A check of another version, with probes that this one does not know.
        return verdict
    aggressors = [probe for aggressor_set in planned.aggressor_sets for probe in aggressor_set.probes]
    return verdict.changed(**beside_aggressors(planned.victims[0].probe, aggressors, phase=verdict.phase)._asdict())


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
            yield Panel(histogram_lines, id="histograms")
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
        panel = self.query_one("#histograms", Panel)
        panel.view = histograms(matrix_view, self.key)
        panel.display = panel.view is not None
        panel.styles.height = min(_MOST_HISTOGRAMS, max(6, self.size.height // 2 - 2))
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
    cell = matrix_view.matrix.cells.get(key)
    if cell is not None and cell.repeats:
        section(text, "Percentiles", "\n".join(_percentile_lines(cell)))
        section(text, "Measurement", _measurement(cell))
    row, column = matrix_view.matrix.row(key[0]), matrix_view.matrix.column(key[1])
    for name in dict.fromkeys((row.entry, *(entry_name(name) for name in column.aggressors))):
        entry = entries().get(name)
        if entry is not None:
            section(text, entry.title, entry.what)
    return text


def _percentile_lines(cell: Cell) -> Iterator[str]:
    for phase in PHASES:
        for name, channels in (("now", cell.channels), ("base", cell.baseline)):
            histogram = channels.get(Channel(phase))
            if histogram is None or not histogram.count:
                continue
            p50, p99 = histogram.percentile(50), histogram.percentile(99)
            values = "  ".join(
                f"{label} {duration_ns(ns):>8}" for label, ns in (("p50", p50), ("p99", p99), ("max", histogram.max_ns))
            )
            yield f"{phase!s:<5}{name:<6} {values}  {histogram.count:>6} calls"


def _measurement(cell: Cell) -> str:
    hosts = [repeat.host for repeat in cell.repeats if repeat.host]
    where = f" on {', '.join(hosts)}" if hosts else ""
    return (
        f"{cell.iterations} calls in {plural(len(cell.repeats), 'repeat')}{where}, "
        f"{duration_ns(cell.seconds * 1e9)} in total; "
        "baseline just before and after each."
    )
