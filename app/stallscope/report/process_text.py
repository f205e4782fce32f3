"""The processes that use the GPUs, as text."""

from __future__ import annotations

from stallprobes.machine.gpu_processes import GpuProcessList
from stallprobes.wording import process_wording
from stallscope.report.columns import cut_columns, display_width
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import TextWriter

# Columns of the printed table of processes.
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
# _LONGEST_USER and _LONGEST_GPUS: widths (columns) to which a user name and a list of GPUs are cut. _LEAST_COMMAND:
# smallest width (columns) to which a command is cut.
_LONGEST_USER, _LONGEST_GPUS, _LEAST_COMMAND = 12, 8, 12
# Style of the word that says whether a process can be attached.
ATTACH_STYLES = {"yes": "good", "no": "warn", "own": "dim"}


def show_processes(out: TextWriter, listing: GpuProcessList) -> None:
    """Write a headline, a row for each process, then why some cannot be attached, and what could not be read.

    Commands are cut to the width of ``out``, with … at the end.
    """
    if not listing.processes:
        out.paragraph(process_wording.empty_text(listing))
    else:
        out.paragraph(process_wording.headline(listing), style="strong")
        out.line()
        _table(out, listing)
    refused = [process for process in listing.processes if process.refusal is not None]
    if refused:
        out.line()
    for process in refused:
        out.paragraph(process_wording.refusal_text(process), indent="  ", first=f"{process.pid}: ")
    problems = process_wording.problems(listing)
    if problems:
        out.line()
    for problem in problems:
        out.paragraph(problem, style="warn")


def _table(out: TextWriter, listing: GpuProcessList) -> None:
    rows: list[list[TableCell | str]] = []
    for process in listing.processes:
        word = process_wording.attach_word(process)
        pid, user, indexes, *rest = process_wording.cells(process)
        cut = _cut(out, user, _LONGEST_USER), _cut(out, indexes, _LONGEST_GPUS)
        rows.append([pid, *cut, *rest, TableCell(word, ATTACH_STYLES[word]), ""])
    room = max(out.width - out.natural_width(_COLUMNS, rows), 0) + display_width(_COLUMNS[-1].title)
    for process, row in zip(listing.processes, rows, strict=True):
        row[-1] = _cut(out, process_wording.short_command_text(process), max(room, _LEAST_COMMAND))
    out.table(_COLUMNS, rows)


def _cut(out: TextWriter, text: str, columns: int) -> str:
    """``text`` as ``out`` prints it, in at most ``columns``."""
    text, dots = out.printed(text), out.printed("…")
    return text if display_width(text) <= columns else cut_columns(text, columns - len(dots)) + dots
