"""The table of a blame experiment, for text and screen: for each figure a heading, then a row for each aggressor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stallprobes.units import duration_ns, times
from stallprobes.verdicts.blame import Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallscope.report.columns import wrapped
from stallscope.report.table import Run, Table, TableCell, TableColumn, TableHeading, TableRow

# Sort order of the figures (latencies of victims) in the table of blame: by outcome, then the largest ratio first.
_ORDER = (BlameOutcome.STALL, BlameOutcome.MASKED, BlameOutcome.UNDECIDED)
# Columns of the table of blame.
_COLUMNS = (
    TableColumn("", whole=True),
    TableColumn("alone", right=True),
    TableColumn("without", right=True),
    TableColumn("share", right=True),
    TableColumn("95 %", whole=True),
    TableColumn(""),
)


def blame_lines(blame: Blame, width: int, printed: Callable[[str], str] = str) -> list[list[Run]]:
    """The table of ``blame`` in at most ``width`` columns, what stalls worst first, and what belongs to it.

    ``printed`` returns a text in the characters of the output.
    """

    def sentence(text: str, style: str = "") -> list[list[Run]]:
        return [[(part, style)] for part in wrapped(printed(text), width, indent="  ")]

    figures = [figure for victim in blame.victims for figure in blame.main_figures(victim)]
    figures.sort(key=lambda figure: (_ORDER.index(figure.outcome), -figure.ratio))
    lines: list[list[Run]] = []
    if blame.idle:
        lines += sentence(f"Not running in some windows: {', '.join(blame.idle)}.", "warn")
    if not blame.figures:
        lines += sentence("Too few calls to conclude.", "warn")
    if figures:
        table = Table(_COLUMNS, [*_rows(figures)], printed)
        lines += table.lines(width) or table.stacked(width)
    quiet = [victim for victim in blame.victims if not blame.main_figures(victim)]
    return lines + (sentence(f"{', '.join(quiet)}: none of them") if quiet else [])


def _rows(figures: Sequence[FigureBlame]) -> Iterator[TableRow]:
    for figure in figures:
        change = f"{duration_ns(figure.off_ns)} → {duration_ns(figure.on_ns)}, {times(figure.ratio)}"
        channel = f"{figure.channel.in_sentence} {figure.quantile}"
        yield TableHeading(f"{figure.probe}: {channel} {change}, {because_of(figure)}")
        for part in figure.aggressors:
            share, interval = share_texts(part.share)
            conclusion = TableCell(part.conclusion.text, part.conclusion.style)
            latencies = duration_ns(part.alone_ns), duration_ns(part.without_ns)
            yield (f" {part.aggressor}", *latencies, share, TableCell(interval, "dim"), conclusion)


def because_of(figure: FigureBlame) -> str:
    """Cause of a slow ``figure`` in a few words: ``because of spin``, ``only together: spin, alloc-free``."""

    def names(*conclusions: Conclusion) -> str:
        return ", ".join(blame.aggressor for blame in figure.aggressors if blame.conclusion in conclusions)

    if figure.outcome is BlameOutcome.UNDECIDED:
        return "undecided"
    if figure.outcome is BlameOutcome.MASKED:
        return f"not with all on, but with {names(Conclusion.SUFFICIENT) or 'some of them'} alone"
    causes = ", ".join(blame.aggressor for blame in figure.causes)
    if causes:
        necessary = all(blame.conclusion is Conclusion.NECESSARY for blame in figure.causes)
        return f"only together: {causes}" if necessary and len(figure.causes) > 1 else f"because of {causes}"
    if names(Conclusion.TOGETHER):
        return f"only together: {names(Conclusion.TOGETHER)}"
    if names(Conclusion.UNDECIDED):
        return "undecided"
    longer = names(Conclusion.CONTRIBUTING)
    return f"longer with {longer}" if longer else "none of them"


def share_texts(share: Interval | None) -> tuple[str, str]:
    """A share in percent, and its interval; a dash where it is unknown."""
    if share is None:
        return "–", ""
    return f"{100 * share.value:.0f} %", f"{100 * share.low:.0f}–{100 * share.high:.0f}"
