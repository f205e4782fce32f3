"""State of the screen of processes, frozen, and the views of its panels that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stallprobes.machine.gpu_processes import GpuProcessList, ListedProcess
from stallprobes.wording import process_wording
from stallscope.tui.common.bars import HeadView
from stallscope.tui.common.lines import Run, cut, fit
from stallscope.tui.processes.process_table import ProcessRow, ProcessTableView

# A process: its id and its start time.
ProcessKey = tuple[int, int]
# Reason why an ended process cannot be attached.
_ENDED = "It has ended: select another process."


@dataclass(frozen=True, eq=False)
class ProcessesState:
    """State of the screen; each method but ``row`` returns the state after a change.

    ``rows`` are the processes of the last list in their order, with the selected one if it has ended meanwhile: so no
    other process is under the cursor when a key arrives.
    """

    listing: GpuProcessList | None = None
    rows: tuple[ProcessRow, ...] = ()
    selected: ProcessKey | None = None

    def with_list(self, listing: GpuProcessList) -> ProcessesState:
        """With a later list. With the first one, the first process that can be attached is selected."""
        rows = [ProcessRow(process) for process in listing.processes]
        selected = self.row
        if selected is not None and all(row.key != selected.key for row in rows):
            rows.append(replace(selected, ended=True))
            rows.sort(key=lambda row: row.process.order)
        if selected is None:
            selected = next((row for row in rows if row.process.refusal is None), rows[0] if rows else None)
        return ProcessesState(listing, tuple(rows), None if selected is None else selected.key)

    def selecting(self, key: ProcessKey) -> ProcessesState:
        """With the process ``key`` selected; one that was selected and has ended is left out."""
        rows = tuple(row for row in self.rows if not row.ended or row.key == key)
        return replace(self, rows=rows, selected=key)

    def stepped(self, by: int, around: bool) -> ProcessesState:
        """With the process selected that is ``by`` places further; ``around``: after the last comes the first."""
        keys = [row.key for row in self.rows]
        if not keys:
            return self
        place = (keys.index(self.selected) if self.selected in keys else 0) + by
        return self.selecting(keys[place % len(keys) if around else min(max(place, 0), len(keys) - 1)])

    @property
    def row(self) -> ProcessRow | None:
        """The selected row."""
        return next((row for row in self.rows if row.key == self.selected), None)


def table_view(state: ProcessesState, failure: str) -> ProcessTableView:
    """The table; ``failure`` is why there is no list, "" if there is none yet."""
    listing = state.listing
    if listing is None:
        empty = f"{failure}." if failure else "The processes are being read."
    elif not listing.usable:
        text = process_wording.unusable_text(listing)
        empty = f"{text[0].upper()}{text[1:]}."
    else:
        empty = process_wording.empty_text(listing)
    return ProcessTableView(state.rows, state.selected, empty)


def header_view(state: ProcessesState, failure: str) -> HeadView:
    """State of the list, then how the processes are known; ``failure`` is why the list is not present, "" if it is."""
    listing = state.listing
    here, parts = ("● live", "good"), list[Run]()
    if failure:
        here, parts = (" NOT READ ", "alarm"), [(f" {failure}", "bad")]
    elif listing is None:
        here = ("reading", "dim")
    elif not listing.usable:
        # The table says why.
        here = (" NOT LISTED ", "notice")
    else:
        parts += [(f" {process_wording.headline(listing)}", "dim")] if listing.processes else []
        problems = " ".join(process_wording.problems(listing))
        parts += [(f" {problems}", "warn")] if problems else []
    return HeadView(
        [(3, [("processes that use the GPUs", "dim")])],
        [(0, [here])],
        lambda width, _: [fit([(cut(part, width), style) for part, style in parts], width)],
    )


def detail_paragraphs(state: ProcessesState, attach_key: str) -> Sequence[tuple[str, str, str]]:
    """The details of the selected process, (title, its style, text): whether it can be attached comes first."""
    row = state.row
    if row is None:
        return ()
    process = row.process
    if row.ended:
        verdict = (f"{process.pid}", "warn", _ENDED)
    elif process.refusal is not None:
        verdict = (f"{process.pid}", "warn", process_wording.refusal_text(process))
    else:
        verdict = (f"{process.pid}", "good", f"{attach_key} attaches: its CUDA calls are shown until you quit.")
    return (verdict, *_paragraphs(process))


def _paragraphs(process: ListedProcess) -> list[tuple[str, str, str]]:
    paragraphs = [("command", "dim", process_wording.command_text(process))]
    uses = process_wording.uses_text(process)
    return [*paragraphs, ("uses", "dim", uses)] if uses else paragraphs
