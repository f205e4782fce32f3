"""An interference matrix as text: aggressors as lines, victims as columns, the worst first, then what was found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stallprobes.matrix.matrix import PHASES, QUIET, Status
from stallprobes.units import three
from stallscope.report import findings
from stallscope.report.text import TableCell, TableColumn, TextWriter

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Cell as Measured
    from stallprobes.matrix.matrix import Matrix, MatrixRow
    from stallprobes.model import Phase

_LETTERS = {
    "stalled": "S",
    "slower": "s",
    "host": "h",
    "unsure": "?",
    "overhead": "o",
    "gpu-time": "g",
    "failed": "F",
}
_IN_FULL = {"starved": "STARVED", "invalid": "invalid", "unsupported": "n/a", "missing": "–"}
_MEANINGS = {
    "stalled": "S STALLED",
    "starved": "STARVED hardly a call returned",
    "slower": "s slower",
    "host": "h the host's own noise",
    "unsure": "? unsure",
    "overhead": "o host time that no GPU work explains",
    "gpu-time": "g GPU time",
    "failed": "F failed",
    "unsupported": "n/a unsupported here",
    "missing": "– not reached",
}
_MARKS = {
    "starved": "bad",
    "stalled": "bad",
    "failed": "bad",
    "slower": "warn",
    "host": "warn",
    "unsure": "warn",
    "overhead": "warn",
    "gpu-time": "warn",
    "invalid": "warn",
    "unsupported": "dim",
    "missing": "dim",
}
# So many victims of one aggressor with all their figures; the matrix has the others'.
_IN_FULL_FIRST = 2
_NAME_WIDTH = 22
_HEAD_WIDTH = 10
_GAP = 2


def show(out: TextWriter, matrix: Matrix, hosts: Sequence[str] = ()) -> None:
    """The whole of a check: matrix, findings, what could not be measured, fingerprint. ``hosts`` are sentences on
    the hosts of a merged one."""
    out.paragraph(findings.headline(matrix), style="strong")
    out.paragraph(findings.summary(matrix) + (" (interrupted)" if matrix.interrupted else ""))
    if hosts:
        out.line()
        out.line("About the hosts", "strong")
        for sentence in hosts:
            out.paragraph(sentence, indent="    ", first="  ")
    out.line()
    _matrix(out, matrix)
    _findings(out, matrix)
    _unmeasured(out, matrix)
    out.line()
    machine(out, matrix)


def machine(out: TextWriter, matrix: Matrix) -> None:
    """What the figures depend on, and the machines of a merged matrix."""
    told = " · ".join(f"{key} {value}" for key, value in findings.told(matrix.fingerprint))
    out.paragraph(told or "nothing is known of the machine", indent="  ", first="machine: ", style="dim")
    for name, one in matrix.hosts.items():
        known = [str(one[key]) for key in ("gpu", "driver", "uuid") if one.get(key)]
        out.paragraph(" · ".join([name, *known]), indent="    ", first="  ", style="dim")


def _matrix(out: TextWriter, matrix: Matrix) -> None:
    simulated = f", SIMULATED {matrix.profile}" if matrix.simulated else ""
    out.line(f"Times quiet, call/wait{simulated}", "strong")
    # What this machine cannot do is said below, in a line.
    rows = [row for row in findings.victims(matrix) if not findings.nothing_there(findings.of_row(matrix, row.name))]
    columns = [
        column
        for column in findings.aggressors(matrix)
        if not findings.nothing_there(findings.of_column(matrix, column.name))
    ]
    names = max((len(part) for column in columns for part in folded(column.name, _NAME_WIDTH)), default=0)
    names = max(names, len("quiet, µs"))
    blocks = _blocks(matrix, rows, out.width - names)
    quiet: dict[str, float] = {}
    if len(blocks) > 1:
        most = {column.name: findings.most(findings.of_column(matrix, column.name)) for column in columns}
        quiet = {name: ratio for name, ratio in most.items() if ratio is not None}
    for number, block in enumerate(blocks):
        if number:
            out.line()
        _block(out, matrix, block, [column.name for column in columns if column.name not in quiet], names)
    if quiet:
        out.line()
        bound = short(max(quiet.values()))
        out.paragraph(f"Every victim quiet, medians at most ×{bound}, beside: {', '.join(quiet)}", "  ", "")
    legend = _legend(matrix)
    if legend:
        out.line()
        out.paragraph(" · ".join(legend), style="dim")


def _block(out: TextWriter, matrix: Matrix, block: Sequence[MatrixRow], columns: Sequence[str], names: int) -> None:
    lines = _heads(block)
    if findings.has_quiet(matrix):
        quiet = [TableCell(_quiet(matrix.cells.get((row.name, QUIET))), "dim") for row in block]
        lines.append([TableCell("quiet, µs", "dim"), *quiet])
    for name in columns:
        first, *rest = folded(name, _NAME_WIDTH)
        lines.append([f"{first:<{names}}", *(_cell(matrix.cells.get((row.name, name))) for row in block)])
        lines += [["  " + part, *[""] * len(block)] for part in rest]
    out.table([TableColumn(""), *(TableColumn("", right=True) for _ in block)], lines)


def _legend(matrix: Matrix) -> list[str]:
    present = findings.counts(matrix)
    legend = [meaning for kind, meaning in _MEANINGS.items() if kind in present]
    texts = "".join(_cell(cell).text for cell in matrix.cells.values())
    found = [f"{mark} {meaning}" for mark, meaning in findings.MARKS.items() if mark in texts]
    legend += ["figures are medians, but for these", *found] if found else []
    return legend


def _blocks(matrix: Matrix, rows: Sequence[MatrixRow], room: int) -> list[list[MatrixRow]]:
    """The victims by as many as fit beside each other."""
    blocks: list[list[MatrixRow]] = []
    left = 0
    for row in rows:
        texts = [_cell(cell).text for cell in matrix.cells.values() if cell.row == row.name and cell.column != QUIET]
        texts += [_quiet(matrix.cells.get((row.name, QUIET))), *folded(row.name, _HEAD_WIDTH)]
        width = max(len(text) for text in texts) + _GAP
        if not blocks or width > left:
            blocks.append([])
            left = room
        blocks[-1].append(row)
        left -= width
    return blocks


def _heads(block: Sequence[MatrixRow]) -> list[list[TableCell | str]]:
    heads = [folded(row.name, _HEAD_WIDTH) for row in block]
    height = max((len(head) for head in heads), default=0)
    lines: list[list[TableCell | str]] = []
    for number in range(height):
        # Set down to the figures, so that short names stand right above theirs.
        parts = [head[number - height + len(head)] if number >= height - len(head) else "" for head in heads]
        lines.append(["beside" if number == height - 1 else "", *(TableCell(part, "strong") for part in parts)])
    return lines


def _cell(cell: Measured | None) -> TableCell:
    if cell is None:
        return TableCell("")
    kind = findings.kind(cell)
    mark = _MARKS.get(kind, "")
    if kind in _IN_FULL:
        return TableCell(_IN_FULL[kind] + "  ", mark)
    letter = _LETTERS.get(kind, "")
    if cell.column == QUIET:
        return TableCell(letter, mark)
    return TableCell("/".join(_ratio(cell, phase) for phase in PHASES) + (f" {letter}" if letter else "  "), mark)


def _ratio(cell: Measured, phase: Phase) -> str:
    shown = findings.shown(cell, phase)
    return "–" if shown is None else short(shown.ratio) + shown.mark


def _quiet(cell: Measured | None) -> str:
    """The medians of call and wait in µs beside nothing."""
    if cell is None:
        return ""
    if findings.kind(cell) in _IN_FULL:
        return _IN_FULL[findings.kind(cell)] + "  "
    medians = []
    for phase in PHASES:
        channel = next((channel for channel in cell.channels if channel.phase is phase and not channel.label), None)
        ns = None if channel is None else cell.channels[channel].percentile(50)
        medians.append("–" if ns is None else short(ns / 1000))
    return "/".join(medians) + "  "


def _findings(out: TextWriter, matrix: Matrix) -> None:
    found = findings.groups(matrix)
    if not found:
        return
    out.line()
    out.line("What was found", "strong")
    for group in found:
        word = findings.WORDS.get(group.kind, group.kind)
        out.line()
        out.paragraph(
            group.cause or "No cause is known.", indent="  ", first=f"{word}: ", style=_MARKS.get(group.kind, "")
        )
        for name, cells in group.columns:
            where = "beside nothing" if name == QUIET else f"beside {name}"
            told = "; ".join(f"{cell.row} {findings.figures(cell)}" for cell in cells[:_IN_FULL_FIRST])
            rest = ", ".join(f"{cell.row} {findings.brief(cell)}" for cell in cells[_IN_FULL_FIRST:])
            told += f"; also {rest}" if rest else ""
            out.paragraph(f"{where}: {told}", indent="    ", first="  ")
        if group.helps:
            out.paragraph(f"What helps: {group.helps}", indent="  ", first="  ", style="dim")


def _unmeasured(out: TextWriter, matrix: Matrix) -> None:
    for status, title in ((Status.INVALID, "Measured, and does not count"), (Status.UNSUPPORTED, "Not possible here")):
        reasons = findings.without(matrix, status)
        if reasons:
            out.line()
            out.line(title, "strong")
            for reason, places in reasons:
                out.paragraph(f"{', '.join(places)}: {reason}", indent="    ", first="  ")


def short(value: float) -> str:
    """At most four letters: ``1.0``, ``427``, ``2.3k``, ``14k``."""
    for size, unit in ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")):
        if value < 999.5 * size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return three(value)


def folded(name: str, width: int) -> list[str]:
    """``name`` on lines of at most ``width`` letters, broken after - and +, before @ and /, elsewhere only by need."""
    lines = [""]
    for part in re.findall(r"[@/]?[^-+@/]*[-+]?", name):
        while part:
            if len(lines[-1]) + len(part) <= width:
                lines[-1] += part
                break
            if lines[-1]:
                lines.append("")
            else:
                lines[-1], part = part[:width], part[width:]
    return lines
