"""The probe table: aggressors, then victims, each with key, state, percentiles and the last minute."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events
from textual.message import Message

from stallprobes.live.history import BINS
from stallprobes.live.observation import ProbeSet
from stallprobes.live.view_model import MonitorView, ProbeRow
from stallprobes.model import MS, SLOT_NS, Role
from stallprobes.units import duration
from stallscope.report.columns import padded
from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, VICTIM_KEYS
from stallscope.tui.common.lines import BLOCKS, Line, LineWidget, cut, fit, length, short_ratio

_AGGRESSORS, _VICTIMS = "AGGRESSORS", "VICTIMS"
STRIP = 20
STRIP_FROM = 108
_STATE = 11
_TITLES_FROM = 8
_COLUMNS = (("calls/s", 8), ("phase", 10), ("p50", 9), ("p99", 9), ("× base", 8))
_NARROW = (("calls/s", 7), ("phase", 7), ("p50", 8), ("p99", 8), ("×", 6))


class ProbeTable(LineWidget):
    """Draws the rows of ``monitor_view``, or ``empty`` without any. ``keys_of`` maps names of probes to keys."""

    class RowSelected(Message):
        """A row was clicked: on its box (``toggle``) or elsewhere."""

        def __init__(self, name: str, toggle: bool) -> None:
            super().__init__()
            self.name = name
            self.toggle = toggle

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.probe_set: ProbeSet | None = None
        self.monitor_view: MonitorView | None = None
        self.keys_of: Mapping[str, str] = {}
        self.focus_name: str | None = None
        self.empty = ""
        self._names: list[str | None] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """Both tables. With more rows than ``height``: the focus, the worst rows, and the rows near the focus."""
        if self.monitor_view is None or not self.monitor_view.rows:
            self._names = []
            return [[(f" {self.empty}", "dim")]]
        aggressors, victims = self.monitor_view.aggressors, self.monitor_view.victims
        out: list[tuple[str | None, Line]] = []
        if aggressors:
            out.append((None, _head(_AGGRESSORS, width)))
            out += [(row.name, self._row(row, width)) for row in aggressors]
        if len(out) + len(victims) + 2 <= height and aggressors:
            out.append((None, []))
        out.append((None, _head(_VICTIMS + self._slots, width)))
        out += [(row.name, self._row(row, width)) for row in victims]
        if len(out) > height:
            out = self._most_important(out, width, height)
        self._names = [name for name, _ in out]
        return [line for _, line in out]

    def _most_important(
        self, out: list[tuple[str | None, Line]], width: int, height: int
    ) -> list[tuple[str | None, Line]]:
        """``height`` of the lines in their order; the last title has the number of hidden probes."""
        rows = {row.name: row for row in self.monitor_view.rows} if self.monitor_view is not None else {}
        at = next((i for i, (name, _) in enumerate(out) if name == self.focus_name), 0)
        title = max(i for i, (name, line) in enumerate(out) if name is None and line)

        def rank(number: int) -> tuple[int, float]:
            row = rows.get(out[number][0] or "")
            if number in (at, title):
                return 0, 0.0
            if row is None:
                return (1 if height >= _TITLES_FROM else 5), 0.0
            return {"bad": 1, "warn": 2}.get(row.mark, 3 if row.on else 4), abs(number - at)

        kept = sorted(sorted(range(len(out)), key=rank)[:height])
        hidden = sum(name is not None for i, (name, _) in enumerate(out) if i not in kept)
        found = [out[i] for i in kept]
        if title in kept:
            found[kept.index(title)] = (None, _head(f"{_VICTIMS} +{hidden}{self._slots}", width))
        return found

    @property
    def _slots(self) -> str:
        """A remark in the victims' title while they run in slots."""
        in_slots = self.monitor_view is not None and self.monitor_view.in_slots
        return f" · in slots of {SLOT_NS // MS} ms" if in_slots else ""

    @property
    def height_wanted(self) -> int:
        """Number of lines for all probes of ``probe_set``."""
        if self.probe_set is None:
            return 3
        tables = {probe.role is Role.AGGRESSOR for probe in self.probe_set.probes}
        return len(self.probe_set.probes) + len(tables) + (1 if len(tables) == 2 else 0)

    def on_click(self, event: events.Click) -> None:
        """Post the clicked row."""
        name = self._names[event.y] if event.y < len(self._names) else None
        if name is not None:
            self.post_message(self.RowSelected(name, event.x <= 5))

    def _row(self, row: ProbeRow, width: int) -> Line:
        focused = row.name == self.focus_name
        plain, dim = ("focus", "focus-dim") if focused else ("", "dim")
        mark = f"focus-{row.mark}" if focused and row.mark else row.mark or plain
        key = self.keys_of.get(row.name, " ")
        line: Line = [("▸" if focused else " ", "accent"), (key, "key"), (" ■ " if row.on else " □ ", mark)]
        columns = _columns(width)
        strip = len(row.strip) if width >= STRIP_FROM else 0
        values = _values(row)
        room = width - length(line) - _STATE - 1 - sum(size for _, size in columns) - (strip + 1 if strip else 0)
        line.append((padded(cut(row.short_title or row.title, room), max(room, 1)) + " ", plain))
        line.append((padded(cut(_state(row), _STATE), _STATE), mark))
        for number, (text, (_, size)) in enumerate(zip(values, columns, strict=True)):
            worst = row.mark in ("bad", "warn") and number in (4, 3 if row.quantile == "p99" else 2)
            if len(text) >= size:
                text = text.removeprefix("in ")
            line.append((f"{cut(text, size - 1):>{size}}", mark if worst else plain if row.on else dim))
        if strip:
            line.append((" ", plain))
            line.append((strip_text(row.strip), mark if row.mark == "bad" else "heat"))
        return fit(line, width, plain)


def strip_text(strip: tuple[int, ...]) -> str:
    """A minute of latencies as blocks: eight steps from 100 ns to 10 s, a dot for no call."""
    return "".join("·" if level < 0 else BLOCKS[1 + min(level, BINS - 1) * 8 // BINS] for level in strip)


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    return _COLUMNS if width >= 88 else _NARROW


def _head(title: str, width: int) -> Line:
    columns = _columns(width)
    strip = STRIP + 1 if width >= STRIP_FROM else 0
    room = width - _STATE - sum(size for _, size in columns) - strip
    line: Line = [(f" {title:<{max(room - 1, len(title))}}", "strong"), (f"{'state':<{_STATE}}", "dim")]
    line += [(f"{name:>{size}}", "dim") for name, size in columns]
    if strip:
        line.append((f" {cut('last minute', STRIP)}", "dim"))
    return line


def _values(row: ProbeRow) -> tuple[str, str, str, str, str]:
    rate = "–" if row.calls_per_s is None else f"{row.calls_per_s:.0f}"
    ratio = "–" if row.ratio is None else short_ratio(row.ratio)
    if row.in_flight_us is not None:
        # The age of a call that has not returned matters more than those that have.
        return rate, "in flight", _short(row.in_flight_us), "–", ratio
    return rate, row.phase.traits.word if row.phase else "–", _short(row.p50_us), _short(row.p99_us), ratio


def _state(row: ProbeRow) -> str:
    """The state; the range of an unsteady probe without blanks where it is too long with them."""
    return row.state if row.range_us is None or len(row.state) <= _STATE else row.state.replace(" ", "")


def _short(us: float | None) -> str:
    return "–" if us is None else duration(us).replace(" ", "")


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
