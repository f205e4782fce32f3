"""The screen of the processes that use the GPUs; one that is chosen is attached when the screen has closed."""

from __future__ import annotations

import asyncio
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.events import Key

from stallprobes.machine.gpu_processes import ListedProcess
from stallprobes.wording import process_wording
from stallscope.tui.actions import SCREENS
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.lines import LineWidget, Panel, cut, paragraph_lines
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.processes.process_table import ProcessTable
from stallscope.tui.processes.state import ProcessesState, detail_paragraphs, header_view, table_view
from stallscope.tui.sources.gpu_processes import GpuProcessSource

# Lines of the screen for the header and the key bar.
_AROUND = 3
# Largest width (columns) of a command line in the question whether to attach its process.
_ASKED_COLUMNS = 60
# Heights (lines). _LEAST_DETAIL, _MOST_DETAIL: smallest and largest height of the details of a process (a rule, then
# at least one line for each paragraph). _LEAST_TABLE: smallest height of the process table.
_LEAST_DETAIL, _MOST_DETAIL, _LEAST_TABLE = 4, 12, 4


class ProcessesScreen(ActionScreen):
    """Shows the list of ``source``, by default of the context's source, while it is open; ``state`` is the visible
    part.

    Over the monitor it asks before it attaches a process: the monitor, its engine and its probes end first.
    """

    NAME = "processes"

    def __init__(self, context: ScreenContext, source: GpuProcessSource | None = None) -> None:
        super().__init__(context)
        self.source = source or context.controller(GpuProcessSource, GpuProcessSource)
        self.state = ProcessesState()
        self._failure = ""
        # Whether a process is being looked at once more before it is attached.
        self._checking = False

    @property
    def _over_monitor(self) -> bool:
        """True if the monitor is below; else this is the first screen, whose source is the app's."""
        return self.context.source is not self.source

    @property
    def reads(self) -> bool:
        """True if the first list is being read."""
        return self.state.listing is None and not self.source.failure

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Names of the actions that do nothing now: attach, if no process is listed."""
        return () if self.state.rows else ("attach",)

    def holds(self, event: Key) -> bool:
        """True if a key waits for the first list, or as an answer for the question that follows a look."""
        return super().holds(event) or (self._checking and event.key in ("y", "n"))

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield ScreenHead(header_view(self.state, ""), id="processes-header")
        yield ProcessTable(id="processes")
        yield Panel(partial(paragraph_lines, indent="  "), (), id="process-detail")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Start to read. Textual calls the base class's method too."""
        self.source.start()

    def on_unmount(self) -> None:
        """Read no more."""
        self.source.stop()

    def show(self, state: ProcessesState) -> None:
        """Have the next frame draw ``state``."""
        self.state = state
        self.mark_changed()

    def tick(self) -> None:
        """Take the last list, and draw the changed part."""
        listing, failure = self.source.listing, self.source.failure
        if listing is not None and listing is not self.state.listing:
            self.show(self.state.with_list(listing))
        if failure != self._failure:
            self._failure = failure
            self.mark_changed()
        if self.changed and self.can_draw and (self.app.screen is self or self.app.screen.is_modal):
            self.draw()

    def draw(self) -> None:
        """Draw every panel."""
        self.changed = False
        self.query_one(ScreenHead).view = header_view(self.state, self._failure)
        self.query_one(ProcessTable).view = table_view(self.state, self._failure)
        key = next(self.key_of(action) for action in SCREENS["processes"] if action.name == "attach")
        self.query_one(Panel).view = detail_paragraphs(self.state, key)
        if not self._checking:
            self.show_note("")
        self.rearrange()

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes: the table has the lines that the detail leaves."""
        rest = height - _AROUND
        detail = self.query_one(Panel)
        wanted = len(paragraph_lines(detail.view, width, _MOST_DETAIL, "  ")) if detail.view else 0
        lines = max(min(max(wanted, _LEAST_DETAIL), rest - _LEAST_TABLE), 0) if wanted else 0
        detail.styles.height = lines
        detail.display = lines > 0
        self.query_one(ProcessTable).styles.height = rest - lines

    # Actions.

    def action_process_row(self, by: int, around: bool = True) -> None:
        """Select another process; ``around``: after the last one comes the first."""
        self.show(self.state.stepped(by, around))

    def action_process_page(self, by: int) -> None:
        """Go pages up or down."""
        self.action_process_row(by * self.query_one(ProcessTable).page, around=False)

    def action_process_end(self, by: int) -> None:
        """Go to the first process or to the last."""
        self.action_process_row(by * len(self.state.rows), around=False)

    def action_attach(self) -> None:
        """Attach the selected process, or say why it cannot be attached."""
        row = self.state.row
        if row is None or self._checking:
            return
        if row.ended:
            self.warn(f"Process {row.process.pid} has ended.")
        elif row.process.own or not row.process.visible:
            self._refuse(row.process.refusal or "")
        else:
            self._checking = True
            self.show_note(f"looking at process {row.process.pid}")
            self.run_worker(self._look_and_attach(row.process))

    async def _look_and_attach(self, process: ListedProcess) -> None:
        """Attach ``process`` unless it has ended or can no longer be attached."""
        try:
            # What the list says is some seconds old, and looking takes a while.
            refusal = await asyncio.wrap_future(self.source.refusal(process.pid))
        finally:
            self._checking = False
            self.show_note("")
        row = next((row for row in self.state.rows if row.key == process.key), None)
        if row is None or row.ended:
            self.warn(f"Process {process.pid} has ended.")
        elif refusal is not None:
            self._refuse(refusal)
        elif self._over_monitor:
            command = cut(process_wording.short_command_text(process), _ASKED_COLUMNS)
            question = f"Attach process {process.pid}, {command}? The monitor ends first, with its engine and probes."
            self.ask(Ask(question, yes="yes, end the monitor"), lambda _: self._leave_for(process))
        else:
            self._leave_for(process)

    def _refuse(self, refusal: str) -> None:
        self.warn(process_wording.refusal_sentence(refusal))

    def _leave_for(self, process: ListedProcess) -> None:
        self.context.chosen_pid = process.pid
        self.app.exit()

    @on(LineWidget.Clicked, "ProcessTable")
    def select_clicked_row(self, message: LineWidget.Clicked) -> None:
        """Select the clicked process; if it is selected, attach it."""
        if message.target == self.state.selected:
            self.action_attach()
        else:
            self.show(self.state.selecting(message.target))


# Class of this module's screen, which the app looks up by this name.
SCREEN = ProcessesScreen
