"""The matrix screen: runs a check cell by cell, and opens and saves checks."""

from __future__ import annotations

import io
import signal
import time
from dataclasses import replace

from textual import on
from textual.app import ComposeResult

from stallscope.report import matrix_text
from stallscope.report.text import TextWriter
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.dialog import Ask, Choose, Prompt
from stallscope.tui.common.lines import LineWidget
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.common.timers import Pace
from stallscope.tui.matrix.block import BlockLayout, BlockView, SymbolBlock
from stallscope.tui.matrix.cell import CellScreen
from stallscope.tui.matrix.controller import MatrixController, MatrixState, suggestion
from stallscope.tui.matrix.cursor import MatrixCursor, block_view
from stallscope.tui.matrix.header import HEAD_HEIGHT, TALL_HEAD_HEIGHT, head_view
from stallscope.tui.matrix.view_model import Key

# Seed of the random order in which a check that is started on this screen measures its cells.
SEED = 1
# Width (columns) of the report of a check that is copied to the clipboard.
_REPORT_COLUMNS = 100
# Redraws per second while a check runs and only its shown time changes.
RUN_PER_S = 4.0
# Smallest screen height (lines) at which the header has all lines of the headline.
TALL_SCREEN = 44
# Answers to the question how much a check measures.
_QUICK, _FULL = "quick", "full"
# Sentence in the question before another check is run or opened, while the present check is not saved.
_UNSAVED = "The current check is not saved and will be lost."


def _is_new(drawn: MatrixState | None, state: MatrixState) -> bool:
    """True if a check has ended or was opened since ``drawn``."""
    if drawn is None or drawn.matrix_view is None or state.matrix_view is None or drawn.run is not None:
        return True
    return drawn.matrix_view.matrix is not state.matrix_view.matrix


class MatrixScreen(ActionScreen):
    """Shows the check of the context's MatrixController; ``cursor`` says what of it."""

    NAME = "matrix"

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context)
        self.controller = context.controller(MatrixController, MatrixController)
        self.cursor = MatrixCursor(follows=self.controller.state.run is not None)
        context.activities[self.NAME] = self.controller.activity
        self._drawn: MatrixState | None = None
        self._drawn_size: tuple[int, int] = (0, 0)
        # The time of a running check moves without a change of the state.
        self._run_pace = Pace(RUN_PER_S, context.settings.frames_per_second)

    def compose(self) -> ComposeResult:
        """Header, block with the selected cell, key bar."""
        yield ScreenHead(id="check-head")
        yield SymbolBlock(id="block")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Show the last saved check, and suspend a check with the program."""
        if self.controller.state.matrix_view is None and self.controller.state.run is None:
            self.controller.show_saved()
        send = self.controller.send_signal
        self.app.app_suspend_signal.subscribe(self, lambda _: send(signal.SIGSTOP), immediate=True)
        self.app.app_resume_signal.subscribe(self, lambda _: send(signal.SIGCONT), immediate=True)

    @property
    def reads(self) -> bool:
        """True if a check is being read, or not yet drawn."""
        state = self.controller.state
        return self.controller.reads or (state.run is None and state is not self._drawn)

    # Drawing.

    def tick(self) -> None:
        """Draw what changed, ask the controller's question, and leave when the check has ended."""
        state = self.controller.state
        if self.app.screen is self:
            question = self.controller.take_question()
            if question is not None:
                sentence, yes, action = question
                self.ask(Ask(sentence, yes), lambda _: action())
        now_s = time.monotonic()
        running = state.run is not None and self._run_pace.due(now_s)
        if self.can_draw and (self.changed or state is not self._drawn or running):
            self.draw()

    def draw(self) -> None:
        """Draw the controller's state."""
        self.changed, state, drawn = False, self.controller.state, self._drawn
        self._drawn, key = state, self.cursor.key
        if state.run is None and _is_new(drawn, state):
            self.cursor = self.cursor.at_worst(state.matrix_view) or self.cursor
        self.cursor = self.cursor.at_newest_stall(state).on_cell_of(state.matrix_view)
        block = self.query_one(SymbolBlock)
        if self.cursor.key != key or block.size != self._drawn_size:
            self._drawn_size = block.size
            self.cursor = self._with_cell_visible(self.cursor)
        self.query_one(ScreenHead).view = head_view(state, time.monotonic(), self.replayed)
        block.view = self._block_view(self.cursor)

    def _block(self, cursor: MatrixCursor) -> tuple[BlockView, BlockLayout]:
        """The block at ``cursor``, from which movements start."""
        view = self._block_view(cursor)
        return view, view.layout(*self.query_one(SymbolBlock).size)

    def _block_view(self, cursor: MatrixCursor) -> BlockView:
        return block_view(self.controller.state, cursor, self.replayed, self.settings.ascii)

    def _with_cell_visible(self, cursor: MatrixCursor) -> MatrixCursor:
        view, layout = self._block(cursor)
        return replace(cursor, first=layout.first_with_focus(view))

    def _show(self, cursor: MatrixCursor) -> None:
        """Have the next frame draw the block at ``cursor``."""
        self.cursor = cursor
        self.mark_changed()

    def _show_cell(self, cursor: MatrixCursor) -> None:
        """Have the next frame draw the block at ``cursor``, with the selected cell visible."""
        self._show(self._with_cell_visible(cursor))

    def place_panels(self, width: int, height: int) -> None:
        """Give the header its lines, and the block all others."""
        self.query_one(ScreenHead).styles.height = TALL_HEAD_HEIGHT if height >= TALL_SCREEN else HEAD_HEIGHT

    # Selected cell.

    def action_check_worst(self) -> None:
        """Select the worst cell."""
        worst = self.cursor.at_worst(self.controller.state.matrix_view)
        if self.controller.state.matrix_view is not None and worst is None:
            self.controller.show_message("Every cell is quiet.")
        self._show_cell(worst or self.cursor)

    def action_check_page(self, by: int) -> None:
        """Go pages up or down."""
        self.action_check_move(by * self._block(self.cursor)[1].rows, 0)

    def action_check_home(self) -> None:
        """Select the first cell of the row, or of the matrix."""
        row, column = self._block(self.cursor)[0].focus
        self.action_check_move(-row if column == 0 else 0, -column)

    def action_check_end(self) -> None:
        """Select the last cell of the row, or of the matrix."""
        view, _ = self._block(self.cursor)
        row, column = view.focus
        last = len(view.columns) - 1
        self.action_check_move(len(view.rows) - 1 - row if column == last else 0, last - column)

    def action_check_move(self, rows: int, columns: int) -> None:
        """Select the cell ``rows`` and ``columns`` away, or the nearest one."""
        self._show_cell(self.cursor.moved(self._block(self.cursor)[0], rows, columns))

    @on(LineWidget.Clicked, "SymbolBlock")
    def select_clicked_cell(self, message: LineWidget.Clicked) -> None:
        """Select the clicked cell, or open it."""
        if message.target == self.cursor.key:
            self.action_check_cell()
        else:
            self._show(replace(self.cursor, key=message.target, follows=False))

    def on_wheel_widget_turned(self, message: SymbolBlock.Turned) -> None:
        """Scroll without changing the selected cell."""
        rows, columns = (0, message.steps) if message.sideways else (message.steps, 0)
        self._show(self.cursor.scrolled(*self._block(self.cursor), rows, columns))

    def action_check_cell(self) -> None:
        """Open the selected cell."""
        if self.cursor.key is not None and self.controller.state.matrix_view is not None:

            def step(columns: int) -> Key:
                self.action_check_move(0, columns)
                assert self.cursor.key is not None
                return self.cursor.key

            self.app.push_screen(CellScreen(lambda: self.controller.state.matrix_view, self.cursor.key, step))

    # Checks and files.

    def action_check_run(self) -> None:
        """Ask for the extent, and run a check."""
        if self.controller.state.run is not None:
            self.controller.show_message("A check is already running.")
            return
        title = f"Run a check? Order by seed {SEED}. The monitor's engine stops meanwhile."
        if self.controller.state.unsaved:
            title += f" {_UNSAVED}"
        options = [
            (_QUICK, "quick: some victims with the aggressors that stall most, a few seconds"),
            (_FULL, "full: every victim with every aggressor, a minute or two"),
        ]
        self.ask(Choose(title, options), self._run_check)

    def _run_check(self, extent: str) -> None:
        live = self.live
        if live is None:
            return

        def run() -> None:
            self.context.check_runs = lambda: self.controller.state.run is not None
            self.cursor = replace(self.cursor, follows=True)
            self.controller.run(extent == _QUICK, SEED, live.release_gpu(1 if extent == _QUICK else 2))

        self.if_sharing_allowed(run)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The key that stops the check, where none runs."""
        return () if self.controller.state.run is not None else ("check_stop",)

    def action_check_stop(self) -> None:
        """Stop the check."""
        if self.controller.state.run is None:
            self.controller.show_message("No check is running.")
        else:
            self.controller.stop()

    def action_check_open(self) -> None:
        """Ask for a file, and open it."""
        if self._no_check_runs():
            question = "Open which check?" + (f" {_UNSAVED}" if self.controller.state.unsaved else "")
            self.ask(Prompt(question), self.controller.open)

    def action_check_save(self) -> None:
        """Ask for a file, and save the check."""
        if self._no_check_runs() and self._has_check():
            given = suggestion(self.controller.state)
            self.ask(Prompt("Save the check to which file?", given), self.controller.save)

    def _no_check_runs(self) -> bool:
        if self.controller.state.run is not None:
            self.controller.show_message("A check is running: stop it, or wait for its end.")
        return self.controller.state.run is None

    def _has_check(self) -> bool:
        if self.controller.state.matrix_view is None:
            self.controller.show_message("There is no check yet: run one, or open a file.")
        return self.controller.state.matrix_view is not None

    def action_copy(self) -> None:
        """Copy the text report of the check to the terminal's clipboard."""
        if self._has_check() and self.controller.state.matrix_view is not None:
            text = io.StringIO()
            matrix_text.show(TextWriter(text, width=_REPORT_COLUMNS), self.controller.state.matrix_view.matrix)
            self.copy_report(text.getvalue())


# Class of this module's screen, which the app looks up by this name.
SCREEN = MatrixScreen
