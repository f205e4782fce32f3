"""The table of a blame experiment, for text and screen: the figures that stall worst first, with bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from stallprobes.units import duration_ns, times
from stallprobes.verdicts.blame import Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallscope.report.columns import by_column, cut_columns, display_width, padded, wrapped

# Text and its style.
Run = tuple[str, str]
# Width (columns) of a full bar in the table of blame (an experiment that finds which aggressor causes a stall).
BAR_WIDTH = 6
# Glyph of a bar whose width rounds to 0 columns.
_NO_BAR = "▏"
# Sort order of the figures (latencies of victims) in the table of blame: by outcome, then the largest ratio first.
_ORDER = (BlameOutcome.STALL, BlameOutcome.MASKED, BlameOutcome.UNDECIDED)
# Shorter words for some conclusions of a blame experiment, for a narrow table.
_BRIEF = {Conclusion.CAUSE: "necessary, suff.", Conclusion.NECESSARY: "necessary"}
# Smallest width (columns) to which the table of blame cuts a name. If a layout leaves less room for names, the table
# tries the next narrower layout.
_LEAST_NAME = 12


@dataclass(frozen=True)
class _Width:
    """Parts of the table that narrow terminals leave out."""

    gap: int
    bars: bool = False
    share_bars: bool = True
    brief: bool = False


# Layouts of the table of blame that show whole names, the widest first. The table uses the first layout that fits the
# terminal. The first argument is the number of blanks between two columns.
_WIDTHS = (_Width(2, bars=True), _Width(1, bars=True), _Width(2), _Width(2, brief=True), _Width(1, brief=True))
# Layouts of the table of blame that cut names to the room left, the widest first; used if no layout of _WIDTHS fits.
_NARROWEST = (_Width(1, brief=True), _Width(1, brief=True, share_bars=False))


@dataclass(frozen=True)
class _BlameColumn:
    """The cells of a column and its title; ``gap`` columns of the terminal lie before it."""

    title: str
    cells: list[Run]
    gap: int = 0
    right: bool = False

    @property
    def width(self) -> int:
        """The width of its widest cell."""
        return max(map(display_width, (self.title, *(text for text, _ in self.cells))))


class BlameTable:
    """The table of ``blame``: ``lines`` draws it; ``printed`` returns a text in the characters of the output."""

    def __init__(self, blame: Blame, printed: Callable[[str], str] = str) -> None:
        self._blame, self._printed = blame, printed
        figures = [figure for victim in blame.victims for figure in blame.main_figures(victim)]
        self._figures = sorted(figures, key=lambda figure: (_ORDER.index(figure.outcome), -figure.ratio))
        self._parts = [(figure, part) for figure in self._figures for part in figure.aggressors]

    def lines(self, width: int) -> list[list[Run]]:
        """The lines in at most ``width`` columns: for each figure a heading, then a row for each aggressor."""
        blame, out = self._blame, list[list[Run]]()
        if blame.idle:
            out += self._folded(f"Not running in some windows: {', '.join(blame.idle)}.", width, "warn")
        if not blame.figures:
            out += self._folded("Too few calls to conclude.", width, "warn")
        if self._figures:
            titles, *rows = self._rows(width)
            by_part = iter(rows)
            for number, (figure, heading) in enumerate(zip(self._figures, self._headings(width), strict=True)):
                out += [*([[]] if number else []), *heading, *(titles if not number else [])]
                out += [line for _ in figure.aggressors for line in next(by_part)]
        quiet = [victim for victim in blame.victims if not blame.main_figures(victim)]
        if quiet:
            out += [*([[]] if self._figures else []), *self._folded(f"{', '.join(quiet)}: none of them", width)]
        return out

    def _headings(self, width: int) -> Iterator[list[list[Run]]]:
        """The lines over the rows of each figure, in columns where these fit; a cause that does not is on its own."""
        columns = [
            self._column([(figure.probe, "strong") for figure in self._figures]),
            self._column([(f"{figure.channel.in_sentence} {figure.quantile}", "") for figure in self._figures], gap=2),
            self._column([(_change(figure), "") for figure in self._figures], gap=2),
            self._column([(times(figure.ratio), _ratio_style(figure)) for figure in self._figures], gap=2),
        ]
        causes = self._column([(because_of(figure), "strong") for figure in self._figures], gap=3)
        if _total([*columns, causes]) <= width:
            yield from ([_line([*columns, causes], number)] for number in range(len(self._figures)))
            return
        for number in range(len(self._figures)):
            *change, cause = (replace(column, cells=[column.cells[number]]) for column in (*columns, causes))
            if _total([*change, cause]) <= width:
                yield [_line([*change, cause], 0)]
                continue
            fits = _total(change) <= width
            head = [_line(change, 0)] if fits else self._folded(" ".join(part.cells[0][0] for part in change), width)
            yield [*head, *self._folded(cause.cells[0][0], width, "strong", "  ")]

    def _rows(self, width: int) -> Iterator[list[list[Run]]]:
        """The lines of the titles, then those of each aggressor of each figure."""
        columns = self._fitting(width)
        if columns is None:
            yield []
            for _, part in self._parts:
                delays = f"alone {duration_ns(part.alone_ns)}, without it {duration_ns(part.without_ns)}"
                text = f"{part.conclusion.text}, {delays}, share {' '.join(share_texts(part.share))}"
                yield self._folded(f"{part.aggressor}: {text}", width, "", "  ")
            return
        yield [_line(columns, None)]
        for number in range(len(self._parts)):
            yield [_line(columns, number)]

    def _fitting(self, width: int) -> list[_BlameColumn] | None:
        """The columns in the widest arrangement that fits ``width``; None where not even short names do."""
        for widths in _WIDTHS:
            columns = self._columns(widths)
            if _total(columns) <= width:
                return columns
        for widths in _NARROWEST:
            columns = self._columns(widths)
            room = width - _total(columns[1:])
            if room >= _LEAST_NAME:
                short = [(self._shortened(text, room), style) for text, style in columns[0].cells]
                return [_BlameColumn("", short), *columns[1:]]
        return None

    def _columns(self, at: _Width) -> list[_BlameColumn]:
        parts, gap = self._parts, at.gap
        shares = [share_texts(part.share) for _, part in parts]
        conclusions = [(_BRIEF if at.brief else {}).get(part.conclusion, part.conclusion.text) for _, part in parts]
        columns = [
            self._column([(part.aggressor, "") for _, part in parts]),
            *self._delays("alone", [(figure, part.alone_ns) for figure, part in parts], at),
            *self._delays("without", [(figure, part.without_ns) for figure, part in parts], at),
            self._column([(value, "") for value, _ in shares], "share", gap, right=True),
            self._column([(interval, "dim") for _, interval in shares], "95 %", 1),
        ]
        if at.share_bars:
            columns.append(
                self._column([(padded(share_bar(part.share), BAR_WIDTH), "accent") for _, part in parts], "", 1)
            )
        styles = (part.conclusion.style for _, part in parts)
        return [*columns, self._column(list(zip(conclusions, styles, strict=True)), "", gap)]

    def _delays(self, title: str, values: list[tuple[FigureBlame, float | None]], at: _Width) -> Iterator[_BlameColumn]:
        """A column of figures, and one of their bars where there is room."""
        bars = [(padded(bar, BAR_WIDTH), style) for bar, style in (delay_bar(figure, ns) for figure, ns in values)]
        yield self._column([(duration_ns(ns), "") for _, ns in values], title, at.gap, right=True)
        if at.bars:
            yield self._column(bars, "", 1)

    def _column(self, cells: list[Run], title: str = "", gap: int = 0, right: bool = False) -> _BlameColumn:
        return _BlameColumn(title, [(self._printed(text), style) for text, style in cells], gap, right)

    def _shortened(self, name: str, columns: int) -> str:
        """``name`` in at most ``columns``, without its middle: names that begin alike differ at their ends."""
        if display_width(name) <= columns:
            return name
        dots = self._printed("…")
        room = columns - len(dots)
        return cut_columns(name, room - room // 2) + dots + "".join(by_column(name)[-(room // 2) :])

    def _folded(self, text: str, width: int, style: str = "", first: str = "") -> list[list[Run]]:
        return [[(part, style)] for part in wrapped(self._printed(text), width, first=first, indent=f"{first}  ")]


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


def _change(figure: FigureBlame) -> str:
    return f"{duration_ns(figure.off_ns)} → {duration_ns(figure.on_ns)}"


def _ratio_style(figure: FigureBlame) -> str:
    return "bad" if figure.outcome is BlameOutcome.STALL else "dim"


def _line(columns: Sequence[_BlameColumn], number: int | None) -> list[Run]:
    """The line ``number`` of ``columns``, that of their titles for None, without spaces at its end."""
    out: list[Run] = []
    for column in columns:
        text, style = (column.title, "dim") if number is None else column.cells[number]
        shown = padded(text, column.width, column.right)
        out += [(" " * column.gap, ""), (shown, style)] if column.gap else [(shown, style)]
    while out and not out[-1][0].strip():
        out.pop()
    return [*out[:-1], (out[-1][0].rstrip(), out[-1][1])] if out else out


def _total(columns: Sequence[_BlameColumn]) -> int:
    return sum(column.gap + column.width for column in columns)
