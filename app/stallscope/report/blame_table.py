"""The table of a blame experiment, for text and screen: for each figure a heading, then a row for each aggressor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stallprobes.units import duration_ns, times
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallscope.report.columns import wrapped
from stallscope.report.table import Run, Table, TableCell, TableColumn, TableHeading, TableRow

# Width (columns) of a full bar in the table of blame (an experiment that finds which aggressor causes a stall).
BAR_WIDTH = 6
# Glyph of a bar whose width rounds to 0 columns.
_NO_BAR = "▏"
# Sort order of the figures (latencies of victims) in the table of blame: by outcome, then the largest ratio first.
_ORDER = (BlameOutcome.STALL, BlameOutcome.MASKED, BlameOutcome.UNDECIDED)
# Forms of the table of blame, the widest first: whether delays have bars, and whether shares have bars. The table has
# the first form that fits the terminal. If no form fits, the text in the last form is folded.
_FORMS = ((True, True), (False, True), (False, False))
# Columns of the table of blame. The columns of bars are left out if no row has a bar.
_COLUMNS = (
    TableColumn("", whole=True),
    TableColumn("alone", right=True),
    TableColumn("", optional=True),
    TableColumn("without", right=True),
    TableColumn("", optional=True),
    TableColumn("share", right=True),
    TableColumn("95 %", whole=True),
    TableColumn("", optional=True),
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
        tables = [Table(_COLUMNS, [*_rows(figures, *form)], printed) for form in _FORMS]
        table = next((table for table in tables if table.natural_width <= width), tables[-1])
        lines += table.lines(width) or table.stacked(width)
    quiet = [victim for victim in blame.victims if not blame.main_figures(victim)]
    return lines + (sentence(f"{', '.join(quiet)}: none of them") if quiet else [])


def _rows(figures: Sequence[FigureBlame], delay_bars: bool, share_bars: bool) -> Iterator[TableRow]:
    def row(figure: FigureBlame, part: AggressorBlame) -> TableRow:
        alone, without = (delay_bar(figure, ns) if delay_bars else ("", "") for ns in (part.alone_ns, part.without_ns))
        share, interval = share_texts(part.share)
        return (
            f" {part.aggressor}",
            duration_ns(part.alone_ns),
            TableCell(*alone),
            duration_ns(part.without_ns),
            TableCell(*without),
            share,
            TableCell(interval, "dim"),
            TableCell(share_bar(part.share) if share_bars else "", "accent"),
            TableCell(part.conclusion.text, part.conclusion.style),
        )

    for figure in figures:
        change = f"{duration_ns(figure.off_ns)} → {duration_ns(figure.on_ns)}, {times(figure.ratio)}"
        channel = f"{figure.channel.in_sentence} {figure.quantile}"
        yield TableHeading(f"{figure.probe}: {channel} {change}, {because_of(figure)}")
        yield from (row(figure, part) for part in figure.aggressors)


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


def delay_bar(figure: FigureBlame, ns: float | None) -> Run:
    """Bar of the share of the delay of ``figure`` at ``ns``: none as with all off, the whole bar as with all on."""
    if ns is None:
        return "", ""
    # With all on a masked stall is not slow.
    values = [value for part in figure.aggressors for value in (part.alone_ns, part.without_ns) if value is not None]
    full_ns = max([figure.on_ns, *values]) if figure.outcome is BlameOutcome.MASKED else figure.on_ns
    delay_ns = full_ns - figure.off_ns
    share = 0.0 if delay_ns <= 0 else min(max((ns - figure.off_ns) / delay_ns, 0.0), 1.0)
    return "█" * round(BAR_WIDTH * share) or _NO_BAR, "bad" if share >= 0.5 else "dim"


def share_bar(share: Interval | None) -> str:
    """The interval of a share: solid up to its lower bound, light up to its upper one."""
    if share is None:
        return ""
    low, high = (round(BAR_WIDTH * min(max(end, 0.0), 1.0)) for end in (share.low, share.high))
    return "█" * low + "░" * (high - low) or _NO_BAR


def share_texts(share: Interval | None) -> tuple[str, str]:
    """A share in percent, and its interval; a dash where it is unknown."""
    if share is None:
        return "–", ""
    return f"{100 * share.value:.0f} %", f"{100 * share.low:.0f}–{100 * share.high:.0f}"
