"""The processes that use the GPUs, as text."""

from __future__ import annotations

from stallprobes.machine.gpu_processes import GpuProcessList
from stallprobes.wording import process_wording
from stallscope.report.columns import cut_columns, display_width, wrapped
from stallscope.report.text import UNLIMITED_WIDTH, TableCell, TableColumn, TextWriter

_COLUMNS = (
    TableColumn("PID", right=True),
    TableColumn("USER"),
    TableColumn("GPU"),
    TableColumn("TYPE"),
    TableColumn("MEMORY", right=True),
    TableColumn("SM", right=True),
    TableColumn("ATTACH"),
    TableColumn("COMMAND"),
)
# Where nothing says how wide a line may be.
_USUAL_WIDTH = 80
_LONGEST_USER, _LONGEST_GPUS, _LEAST_COMMAND = 12, 8, 12
_STYLES = {"yes": "good", "no": "warn", "own": "dim"}


def show_processes(out: TextWriter, listing: GpuProcessList) -> None:
    """Write a headline, a row for each process, then why some cannot be attached, and what could not be read.

    Lines are as wide as those of ``out``, or 80 columns where it has no width; commands are cut to that.
    """
    width = _USUAL_WIDTH if out.width >= UNLIMITED_WIDTH else out.width

    def paragraph(text: str, first: str = "", indent: str = "", style: str = "") -> None:
        for line in wrapped(out.printed(text), width, first=first, indent=indent, break_long_words=False):
            out.line(line, style)

    if not listing.processes:
        paragraph(process_wording.empty_text(listing))
    else:
        paragraph(process_wording.headline(listing), style="strong")
        out.line()
        _table(out, listing, width)
    refused = [process for process in listing.processes if process.refusal is not None]
    if refused:
        out.line()
    for process in refused:
        paragraph(process_wording.refusal_text(process), f"{process.pid}: ", "  ")
    problems = process_wording.problems(listing)
    if problems:
        out.line()
    for problem in problems:
        paragraph(problem, style="warn")


def _table(out: TextWriter, listing: GpuProcessList, width: int) -> None:
    rows: list[list[TableCell | str]] = []
    for process in listing.processes:
        word = process_wording.attach_word(process)
        rows.append(
            [
                str(process.pid),
                _cut(out, process_wording.user_text(process), _LONGEST_USER),
                _cut(out, process_wording.gpus_text(process), _LONGEST_GPUS),
                process_wording.kinds_text(process),
                process_wording.memory_text(process.memory_bytes),
                process_wording.percent_text(process.utilization_percent),
                TableCell(word, _STYLES[word]),
                "",
            ]
        )
    room = max(width - out.natural_width(_COLUMNS, rows), 0) + display_width(_COLUMNS[-1].title)
    for process, row in zip(listing.processes, rows, strict=True):
        row[-1] = _cut(out, process_wording.short_command_text(process), max(room, _LEAST_COMMAND))
    out.table(_COLUMNS, rows)


def _cut(out: TextWriter, text: str, columns: int) -> str:
    """``text`` as ``out`` prints it, in at most ``columns``."""
    text, dots = out.printed(text), out.printed("…")
    return text if display_width(text) <= columns else cut_columns(text, columns - len(dots)) + dots
