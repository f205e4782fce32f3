"""The probe table: aggressors, then victims, each with key, state, percentiles and the last minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from textual.reactive import var

from stallprobes.live.history import BINS
from stallprobes.live.view_model import MonitorView, ProbeRow
from stallprobes.model import Role
from stallprobes.recording.observation import ProbeSet
from stallscope.report.columns import padded
from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, VICTIM_KEYS
from stallscope.tui.common.lines import (
    BLOCKS,
    Line,
    LineWidget,
    Targets,
    cut,
    fit,
    length,
    short_duration,
    short_ratio,
    shortened,
)

# Titles of the two parts of the probe table.
_AGGRESSORS, _VICTIMS = "AGGRESSORS", "VICTIMS"
# Possible widths (columns) of the strip, a plot of a probe's latencies in the last minute. With each of these widths, a
# column spans a whole number of tenths of a second.
_STRIPS = (12, 15, 20, 24, 30, 40, 50, 60, 75, 100, 120, 150)
# Smallest width (columns) of a table with the strip.
_STRIP_FROM = 80
# _WIDE_FROM: smallest width (columns) of a table with all columns of figures. _FEWER_FROM: smallest width (columns) of
# a table with the columns of _FEWER. A narrower table has the columns of _NARROW.
_WIDE_FROM, _FEWER_FROM = 108, 88
# Width (columns) of a row without the strip: _BESIDE_STRIP in a usual table, _COMPACT_BESIDE_STRIP in a compact table.
_BESIDE_STRIP, _COMPACT_BESIDE_STRIP = 96, 68
# Width (columns) of a probe's figures in a compact table.
_COMPACT_FIGURES = 30
# Width (columns) of a probe's state; in a compact table, with a blank after it.
_STATE = 11
# _BOX_END: width (columns) of focus mark, key and box before a probe's name. _SHORTEST_NAME: smallest width (columns)
# to which the names of aggressors side by side are cut. If the table has too few lines for this width, the names become
# shorter.
_BOX_END, _SHORTEST_NAME = 5, 6
# Titles and widths of the columns with figures, in a wide table. The column without a title names the time that
# p50 and p99 measure: call, wait, …
_COLUMNS = (("calls/s", 8), ("", 10), ("base", 9), ("p50", 9), ("p99", 9), ("×", 8))
# Titles and widths of the columns with figures, in a table with fewer figures; a width of 0 hides a column.
_FEWER = (("calls/s", 8), ("", 10), ("base", 0), ("p50", 9), ("p99", 9), ("×", 8))
# Titles and widths of the columns with figures, in a narrow table; a width of 0 hides a column.
_NARROW = (("calls/s", 7), ("", 7), ("base", 0), ("p50", 8), ("p99", 8), ("×", 6))


@dataclass(frozen=True, eq=False)
class ProbeTableView:
    """The rows of ``model``, or the text ``empty`` without any. ``keys_of`` maps names of probes to keys.

    ``compact``: without titles, with the aggressors side by side. ``before`` is the victim that stalled before a
    remedy, with its key there: a row that nothing selects.
    """

    model: MonitorView | None = None
    keys_of: Mapping[str, str] = field(default_factory=dict)
    focus_name: str | None = None
    empty: str = ""
    compact: bool = False
    before: tuple[str, ProbeRow] | None = None


def strip_columns(width: int, *, compact: bool) -> int:
    """The number of columns of the last minute in a table of ``width`` columns, 0 for none."""
    if width < _STRIP_FROM:
        return 0
    room = width - (_COMPACT_BESIDE_STRIP if compact else _BESIDE_STRIP)
    return max((columns for columns in _STRIPS if columns <= room), default=_STRIPS[0])


class ProbeTable(LineWidget):
    """Draws both tables; the target of a click is (name, whether it switches): it does on the box of a probe."""

    view = var(ProbeTableView())

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._titles: dict[str, str] = {}

    def lines(self, width: int, height: int) -> list[Line]:
        """Both tables. With more rows than ``height``: the aggressors side by side, the focus, the worst rows, and the
        rows near the focus."""
        if self.view.model is None or not self.view.model.rows:
            self.targets = []
            return [[(f" {self.view.empty}", "dim")]]
        aggressors, victims = self.view.model.aggressors, self.view.model.victims
        rows = (*aggressors, *victims, *(() if self.view.before is None else (self.view.before[1],)))
        room = max(1, _title_room(width) - _BOX_END - 1)
        titles = shortened([row.name for row in rows], room)
        self._titles = {row.name: padded(title, room) + " " for row, title in zip(rows, titles, strict=True)}
        out: list[tuple[Targets, Line]] = []
        if self.view.compact:
            chips = self._chips(aggressors, width, max(1, height - 1 - len(victims))) if aggressors else []
            out = [*chips, *self._rows(victims, width, height - len(chips), self._compact_row)]
            self.targets = [spans for spans, _ in out]
            return [line for _, line in out]
        if aggressors and len(rows) + 2 > height:
            # What their keys switch stays visible.
            out += self._chips(aggressors, width, max(1, height - 1))
        elif aggressors:
            out.append(([], _head(_AGGRESSORS, width)))
            out += [(_spans(row.name, 0, width), self._row(row, width)) for row in aggressors]
            if len(out) + len(victims) + 2 <= height:
                out.append(([], []))
        out += self._victim_lines(victims, width, height - len(out))
        self.targets = [spans for spans, _ in out]
        return [line for _, line in out]

    def _chips(self, aggressors: tuple[ProbeRow, ...], width: int, most: int) -> list[tuple[Targets, Line]]:
        """Key, box and name of each aggressor in at most ``most`` lines, with the columns of each."""
        names = [row.name for row in aggressors]
        lines, across = 1, len(names)
        if sum(len(name) + _BOX_END + 1 for name in names) > width:
            least = _BOX_END + _SHORTEST_NAME + 1
            lines = min(most, max(2, -(-len(names) * least // width)))
            across = -(-len(names) // lines)
            room = max(3, width // across - _BOX_END - 1)
            names = [padded(name, room) for name in shortened(names, room)]
        out = []
        for first in range(0, len(aggressors), across):
            line: Line = []
            spans: Targets = []
            for row, name in list(zip(aggressors, names, strict=True))[first : first + across]:
                focused = row.name == self.view.focus_name
                plain = "focus" if focused else "" if row.on else "dim"
                at = length(line)
                line += [("▸" if focused else " ", "accent"), (self.view.keys_of.get(row.name, " "), "key")]
                line += [(" ■ " if row.on else " □ ", row.mark or plain), (f"{name} ", plain)]
                spans += _spans(row.name, at, length(line))
            out.append((spans, line))
        return out

    def _victim_lines(self, victims: tuple[ProbeRow, ...], width: int, height: int) -> list[tuple[Targets, Line]]:
        """Title and rows of the victims, the most important ones where ``height`` is too low for all."""
        hidden = max(0, len(victims) + (self.view.before is not None) + 1 - height)
        title = f"{_VICTIMS} +{hidden}" if hidden else _VICTIMS
        return [([], _head(title, width)), *self._rows(victims, width, height - 1, self._row)]

    def _rows(
        self, victims: tuple[ProbeRow, ...], width: int, height: int, drawn: Callable[[ProbeRow, int], Line]
    ) -> list[tuple[Targets, Line]]:
        """The most important rows of the victims in ``height`` lines, with the stall before a remedy above the host."""
        before = self.view.before
        shown = self._most_important(victims, height - (before is not None))
        out = [(_spans(row.name, 0, width), drawn(row, width)) for row in shown]
        if before is not None and height > 0:
            place = sum(row.role is Role.VICTIM for row in shown)
            # The row has the columns of other rows, but is dim, with another key and box.
            line = drawn(before[1], width)
            text = "".join(part for part, _ in line)[_BOX_END:]
            out.insert(place, ([], [(f" {before[0]:1}", "dim"), (" ▒ ", "ghost"), (text, "ghost")]))
        return out

    def _most_important(self, rows: tuple[ProbeRow, ...], count: int) -> list[ProbeRow]:
        """``count`` of the rows in their order: the focus, the worst ones, the neighbours of the focus."""
        at = next((number for number, row in enumerate(rows) if row.name == self.view.focus_name), 0)

        def rank(number: int) -> tuple[int, float]:
            row = rows[number]
            if row.name == self.view.focus_name:
                return 0, 0.0
            return {"bad": 1, "warn": 2}.get(row.mark, 3 if row.on else 4), abs(number - at)

        return [rows[number] for number in sorted(sorted(range(len(rows)), key=rank)[: max(count, 0)])]

    def _compact_row(self, row: ProbeRow, width: int) -> Line:
        """Name, state, the phase with baseline and present value, ratio, and the last minute."""
        focused = row.name == self.view.focus_name
        plain = "focus" if focused else ""
        mark = f"focus-{row.mark}" if focused and row.mark else row.mark or plain
        line: Line = [("▸" if focused else " ", "accent"), (self.view.keys_of.get(row.name, " "), "key")]
        line += [(" ■ " if row.on else " □ ", mark)]
        columns = strip_columns(width, compact=True)
        strip = strip_text(row.strip[-columns:]) if columns else ""
        room = width - _BOX_END - _STATE - _COMPACT_FIGURES - columns - 2
        line += [
            (padded(cut(row.name, room), room) + " ", plain),
            (padded(cut(_state(row, _STATE - 1), _STATE - 1), _STATE), mark),
        ]
        line.append((padded(cut(_compact_figures(row), _COMPACT_FIGURES), _COMPACT_FIGURES) + " ", plain))
        line.append((strip, mark if row.mark == "bad" else "heat"))
        return fit(line, width, plain)

    def _row(self, row: ProbeRow, width: int) -> Line:
        focused = row.name == self.view.focus_name
        plain, dim = ("focus", "focus-dim") if focused else ("", "dim")
        mark = f"focus-{row.mark}" if focused and row.mark else row.mark or plain
        key = self.view.keys_of.get(row.name, " ")
        line: Line = [("▸" if focused else " ", "accent"), (key, "key"), (" ■ " if row.on else " □ ", mark)]
        columns = _columns(width)
        strip = strip_columns(width, compact=False)
        values = _values(row)
        line.append((self._titles[row.name], plain))
        line.append((padded(cut(_state(row, _STATE), _STATE), _STATE), mark))
        for number, (text, (_, size)) in enumerate(zip(values, columns, strict=True)):
            worst = row.mark in ("bad", "warn") and number in (5, 4 if row.quantile == "p99" else 3)
            if not size:
                continue
            if len(text) >= size:
                text = text.removeprefix("in ")
            line.append((f"{cut(text, size - 1):>{size}}", mark if worst else plain if row.on else dim))
        if strip:
            line.append((" ", plain))
            line.append((strip_text(row.strip[-strip:]), mark if row.mark == "bad" else "heat"))
        return fit(line, width, plain)


def _spans(name: str, first: int, end: int) -> Targets:
    """The parts of a line that a click on a probe reaches: its box, and the rest."""
    return [(first, first + _BOX_END, (name, True)), (first + _BOX_END, end, (name, False))]


def table_height(probe_set: ProbeSet | None) -> int:
    """Number of lines for all probes of ``probe_set``."""
    if probe_set is None:
        return 3
    tables = {probe.role is Role.AGGRESSOR for probe in probe_set.probes}
    return len(probe_set.probes) + len(tables) + (1 if len(tables) == 2 else 0)


def strip_text(strip: tuple[int, ...]) -> str:
    """A minute of latencies as blocks: eight steps from 100 ns to 10 s, a dot for no call."""
    return "".join("·" if level < 0 else BLOCKS[1 + min(level, BINS - 1) * 8 // BINS] for level in strip)


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    return _COLUMNS if width >= _WIDE_FROM else _FEWER if width >= _FEWER_FROM else _NARROW


def _title_room(width: int) -> int:
    """Columns before the state."""
    strip = strip_columns(width, compact=False)
    return width - _STATE - sum(size for _, size in _columns(width)) - (strip + 1 if strip else 0)


def _head(title: str, width: int) -> Line:
    columns = _columns(width)
    strip = strip_columns(width, compact=False)
    room = max(_title_room(width) - 1, 1)
    line: Line = [(f" {cut(title, room):<{room}}", "strong"), (f"{'state':<{_STATE}}", "dim")]
    line += [(f"{name:>{size}}", "dim") for name, size in columns if size]
    if strip:
        line.append((f" {cut('last minute', strip)}", "dim"))
    return line


def _values(row: ProbeRow) -> tuple[str, str, str, str, str, str]:
    rate = "–" if row.calls_per_s is None else f"{row.calls_per_s:.{1 if 0 < row.calls_per_s < 0.95 else 0}f}"
    ratio = "–" if row.ratio is None else short_ratio(row.ratio)
    base = short_duration(row.baseline_ns)
    if row.in_flight_ns is not None:
        # The age of a call in flight matters more than returned calls.
        return rate, "in flight", base, short_duration(row.in_flight_ns), "–", ratio
    return (
        rate,
        row.phase.traits.word if row.phase else "–",
        base,
        short_duration(row.p50_ns),
        short_duration(row.p99_ns),
        ratio,
    )


def _compact_figures(row: ProbeRow) -> str:
    """``wait 5.60µs → 1.92ms ×343``."""
    if not row.on or row.phase is None:
        return ""
    if row.in_flight_ns is not None:
        now = f"in flight {short_duration(row.in_flight_ns)}"
    else:
        before = "" if row.baseline_ns is None else f"{short_duration(row.baseline_ns)} → "
        now = f"{row.phase.traits.word} {'p99 ' if row.quantile == 'p99' else ''}{before}{short_duration(row.now_ns)}"
    ratio = "" if row.ratio is None else f"×{short_ratio(row.ratio)}"
    return f"{now} {ratio:>{max(_COMPACT_FIGURES - len(now) - 1, 0)}}"


def _state(row: ProbeRow, most: int) -> str:
    """The state; the range of an unsteady probe without blanks where it is too long with them."""
    return row.state if row.range_ns is None or len(row.state) <= most else row.state.replace(" ", "")


def probe_keys(probe_set: ProbeSet) -> dict[str, str]:
    """The key of each probe by name; " " for probes without one."""
    aggressors, victims = iter(AGGRESSOR_KEYS), iter(VICTIM_KEYS)
    keys: dict[str, str] = {}
    for probe in probe_set.probes:
        if probe.role is Role.AGGRESSOR:
            key = next(aggressors, " ")
        elif probe.role is Role.HOST and HOST_KEY not in keys.values():
            key = HOST_KEY
        else:
            key = next(victims, " ")
        keys[probe.name] = key
    return keys
