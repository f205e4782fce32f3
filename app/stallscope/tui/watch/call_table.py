"""The table of calls: a row for each function of a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from textual.reactive import var

from stallprobes.units import format_count
from stallprobes.watch.live.live_view import WatchRow, WatchRowKey
from stallscope.report.columns import padded
from stallscope.tui.common.lines import Line, RowsWidget, cut, fit, short_duration, shortened

# Columns of figures: title, width (columns), and smallest panel width (columns) that shows the column.
_COLUMNS = (
    ("calls", 9, 0),
    ("calls/s", 9, 88),
    ("p50", 8, 0),
    ("p99", 8, 84),
    ("worst", 8, 0),
    ("in flight", 10, 0),
    ("lost", 8, 72),
)
# Titles of the columns that are left out first, in this order, to make room for the names of threads and functions.
_OPTIONAL = ("calls/s", "p99")
# Title of the column that names the thread of each row, in the table of a watched program's calls.
_THREAD = "thread"
# _LEAST_THREAD, _LONGEST_THREAD: smallest and largest width (columns) of a thread's name, with a blank. _LEAST_NAME:
# half of the smallest width (columns) that the names of a thread and a function have together.
_LEAST_THREAD, _LEAST_NAME, _LONGEST_THREAD = len(_THREAD) + 1, 6, 26
# Width (columns) that a table keeps for the names of functions. Reason: with this width, most shortened names differ.
_USUAL_NAME = 16


@dataclass(frozen=True)
class CallTableView:
    """The ``rows``, or ``empty`` without any. ``now_ns`` is the time for ages; ``hidden`` rows are only counted."""

    rows: Sequence[WatchRow] = ()
    selected: WatchRowKey | None = None
    now_ns: int = 0
    hidden: int = 0
    empty: str = ""


class WatchTable(RowsWidget):
    """Draws the table. The target of a click is the key of a row."""

    view = var(CallTableView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Title and rows."""
        view = self.view
        labels = thread_labels(view.rows)
        longest = max(len(label) for label in (_THREAD, *labels.values()))
        function = min(max((len(row.key.function) for row in view.rows), default=0), _USUAL_NAME)
        columns = _columns(width, min(longest + 1, _LONGEST_THREAD) + function)
        room = max(width - 2 - sum(size for _, size, _ in columns), 2 * _LEAST_NAME)
        thread = min(longest + 1, max(room * 2 // 5, room - function, _LEAST_THREAD), _LONGEST_THREAD)
        visible = self.scrolled(view.rows, view.selected, height)
        left_out = len(view.rows) + view.hidden - len(visible)
        more = f" ({left_out} more)" if left_out else ""
        title = cut(f"{padded(_THREAD, thread)}call{more}", room)
        head: Line = [(f" {padded(title, room)} ", "strong")]
        head += [(f"{name:>{size}}", "dim") for name, size, _ in columns]
        if not view.rows:
            return self.with_targets([(None, head), (None, [(f" {view.empty}", "dim")])], width)
        out: list[tuple[WatchRowKey | None, Line]] = [(None, head)]
        names = shortened([row.key.function for row in visible], max(room - thread, 1))
        for row, name in zip(visible, names, strict=True):
            label = padded(cut(labels[row.key], thread - 1), thread)
            out.append((row.key, self._line(row, f"{label}{padded(name, room - thread)}", columns, width)))
        return self.with_targets(out, width)

    def _line(self, row: WatchRow, name: str, columns: Sequence[tuple[str, int, int]], width: int) -> Line:
        chosen = row.key == self.view.selected
        age_ns = row.age_ns(self.view.now_ns)
        waiting = age_ns is not None and age_ns >= row.slow_limit_ns
        mark = "bad" if waiting else "warn" if row.recent.max_ns >= row.slow_limit_ns and row.recent.count else ""
        plain, dim = ("focus", "focus-dim") if chosen else ("", "dim")
        marked = (f"focus-{mark}" if chosen else mark) if mark else plain
        line: Line = [("▸" if chosen else " ", "accent"), (name, marked if waiting else plain), (" ", plain)]
        figures = dict(zip((title for title, _, _ in _COLUMNS), _texts(row), strict=True))
        figures["in flight"] = "" if age_ns is None else short_duration(age_ns)
        for title, size, _ in columns:
            text = figures[title]
            style = dim if title in ("calls", "calls/s") else plain
            if (title == "worst" and mark == "warn") or (title == "in flight" and waiting):
                style = marked
            elif title == "lost" and text:
                style = "focus-warn" if chosen else "warn"
            line.append((f"{cut(text, size - 1):>{size}}", style))
        return fit(line, width, plain)


def _columns(width: int, names: int) -> list[tuple[str, int, int]]:
    """Columns of figures in a table of ``width``: fewer of them where the names have no room."""
    columns = [column for column in _COLUMNS if width >= column[2]]
    for title in _OPTIONAL:
        if width - 2 - sum(size for _, size, _ in columns) >= names:
            break
        columns = [column for column in columns if column[0] != title]
    return columns


# They change with the row's histograms only, and the table is drawn more often.
@lru_cache(256)
def _texts(row: WatchRow) -> tuple[str, ...]:
    """The figures in the order of ``_COLUMNS``."""
    total = row.total
    return (
        format_count(total.count),
        f"{row.calls_per_s:.0f}",
        short_duration(total.percentile(50)),
        short_duration(total.percentile(99)),
        short_duration(total.max_ns if total.count else None),
        "",
        short_duration(row.lost_ns) if row.lost_ns else "",
    )


def thread_labels(rows: Sequence[WatchRow]) -> dict[WatchRowKey, str]:
    """Label of the thread of each row. It contains the thread's number if another thread of the process has the same
    name. If there are several processes, it contains the process, and for a main thread the process alone."""
    several = len({(row.key.pid, row.key.image) for row in rows}) > 1
    threads = {(row.key.pid, row.key.image, row.key.thread): row.thread_name for row in rows}
    named = Counter((pid, image, name) for (pid, image, _), name in threads.items())
    labels = {}
    for row in rows:
        key, name = row.key, row.thread_name
        thread = f"{name} {key.thread}" if name and named[key.pid, key.image, name] > 1 else name
        thread = thread or f"thread {key.thread}"
        process = f"{row.process} {key.pid}"
        whole = process if key.thread == key.pid else f"{process} {thread}"
        labels[key] = whole if several else thread
    return labels
