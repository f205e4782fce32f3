"""The matrix of a check: run cell by cell, looked at, saved, opened and compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen

from stallprobes.matrix.matrix import QUIET
from stallscope.tui.actions import CHECK_ACTIONS, hints, keys_of, known, shown
from stallscope.tui.common.ask import Ask
from stallscope.tui.common.choose import Choose
from stallscope.tui.common.help import Help
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.lines import Drawn
from stallscope.tui.common.prompt import Prompt
from stallscope.tui.matrix.cell_screen import CellScreen
from stallscope.tui.matrix.cell_text import histograms, passages
from stallscope.tui.matrix.controller import MatrixController, MatrixState, suggestion
from stallscope.tui.matrix.differences import Differences
from stallscope.tui.matrix.grid import CheckHead, Grid, GridView, Passages
from stallscope.tui.matrix.header import headline
from stallscope.tui.matrix.navigation import Walking
from stallscope.tui.matrix.view_model import CHANGE_LEGEND, LEGEND, Figure, Key, MatrixView, Square
from stallscope.tui.monitor.actions import next_theme
from stallscope.tui.monitor.header import SMALLEST
from stallscope.tui.monitor.histograms import Histograms
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import Live
from stallscope.tui.sources.replay import Replay

SEED = 1
HEAD = 3
# From here on the chosen cell's histograms stand beside its words.
SIDE_BY_SIDE, SHAPE = 110, 8
# Title, names of the columns and legend.
_AROUND = 6
_QUICK, _WHOLE = "quick", "whole"
_LEAVE = "The check runs. Stop it and go back? What was measured stays."
_UNSAVED = "The check on the screen is in no file yet, and would be gone."


class MatrixScreen(Walking, Screen[bool]):
    """Over the monitor. Answers True when the monitor's engine was ended for a check.

    ``allowed`` does what it is given once others on the GPU may be disturbed.
    """

    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(action.keys, action.name, action.title, show=False, id=action.name, tooltip=action.what)
        for action in CHECK_ACTIONS
    ]

    def __init__(
        self,
        controller: MatrixController,
        source: Live | Replay,
        settings: Settings,
        allowed: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__()
        self.controller = controller
        self.source = source
        self.settings = settings
        self.allowed = allowed
        self.figure = Figure.JUDGED if controller.state.comparison is None else Figure.CHANGE
        self.worst_first = False
        self.focus_key: Key | None = None
        self.first = (0, 0)
        self._lent = False
        self._leaving = False
        self._seen: MatrixState | None = None
        # What was worked out for the last sheet, so that a tick without news costs nothing.
        self._told: tuple[object, ...] | None = None
        self._written: tuple[MatrixView, Figure, Mapping[Key, tuple[Square, Square, Square]]] | None = None

    def compose(self) -> ComposeResult:
        """The machine and the check, the matrix, the chosen cell, the keys."""
        yield CheckHead(id="check-head")
        yield Grid(id="grid")
        with Container(id="below"):
            yield Passages(id="told")
            yield Histograms(id="shape")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(Histograms).now = "beside it"
        self.query_one(KeyBar).hints = hints(self.source.replayed, self.settings.keys, CHECK_ACTIONS)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.call_after_refresh(self._repaint))
        self.set_interval(1 / self.settings.frames_per_second, self.tick)
        self.call_after_refresh(self.draw)

    def on_resize(self, event: events.Resize) -> None:
        """Give every panel its place."""
        self._arrange(event.size.width, event.size.height)
        self.call_after_refresh(self.draw)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of actions that make no sense here do nothing."""
        mine = {one.name: one for one in CHECK_ACTIONS}
        return mine[action] in known(self.source.replayed, CHECK_ACTIONS) if action in mine else True

    async def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        """A click on a hint of the last line."""
        there = known(self.source.replayed, CHECK_ACTIONS)
        action = next((one for one in there if one.title == message.words), None)
        if action is not None:
            await self.run_action(action.name)

    def commands(self) -> Iterable[SystemCommand]:
        """What the command palette offers."""
        for action in known(self.source.replayed, CHECK_ACTIONS):
            key = shown(keys_of(action, self.settings.keys))
            yield SystemCommand(f"{action.title} ({key})", action.what, getattr(self, f"action_{action.name}"))

    def tick(self) -> None:
        """Draw what changed; ask what is to be asked; leave when the check has ended."""
        state = self.controller.state
        if self._leaving and state.run is None and self.app.screen is self:
            self._leaving = False
            self.dismiss(self._lent)
            return
        if self.app.screen is self and state.question is not None:
            self._ask()
        if state is not self._seen or state.run is not None:
            self.draw()

    def draw(self) -> None:
        """Hand what there is to the panels."""
        if not self.is_mounted:
            return
        state = self.controller.state
        if self._seen is not None and self._seen.comparison is not state.comparison:
            self.figure = Figure.JUDGED if state.comparison is None else Figure.CHANGE
        if self._seen is None or (self._seen.matrix_view is None) != (state.matrix_view is None):
            self._arrange(self.size.width, self.size.height)
        self._seen = state
        self.query_one(CheckHead).view = headline(state, time.monotonic())
        grid = self.query_one(Grid)
        grid.view = self._grid_view(state)
        self._tell(state.matrix_view)
        for widget in self.query(Drawn):
            if widget.display:
                widget.redraw()

    def _tell(self, matrix_view: MatrixView | None) -> None:
        """The chosen cell's words and histograms, where they are other ones than before."""
        told, shape = self.query_one(Passages), self.query_one(Histograms)
        key = self.focus_key
        if matrix_view is None or key is None:
            told.told, shape.view, self._told = (), None, None
            return
        now = (key, matrix_view.matrix.cells.get(key), matrix_view.changes.get(key), shape.display)
        if now != self._told:
            self._told = now
            told.told = passages(matrix_view, key, brief=True)
            shape.view = histograms(matrix_view, key) if shape.display else None

    def _grid_view(self, state: MatrixState) -> GridView:
        matrix_view, replayed = state.matrix_view, self.source.replayed
        if matrix_view is None:
            self.focus_key, run = None, "" if replayed else "r runs a check on this machine; "
            return GridView("the check", empty=("", f"{run}o opens a saved one; ? says how to read it."))
        rows, columns = matrix_view.order(self.worst_first, self.figure is Figure.CHANGE)
        names = tuple(row.name for row in rows), tuple(column.name for column in columns)
        if self.focus_key is None or self.focus_key not in matrix_view.matrix.cells:
            beside = [name for name in names[1] if name != QUIET]
            self.focus_key = (names[0][0], (beside or list(names[1]))[0])
        order = ", worst first" if self.worst_first else ""
        what = "what changed" if self.figure is Figure.CHANGE else f"times quiet, {self.figure}"
        return GridView(
            title=f"{what}{order}",
            rows=names[0],
            columns=names[1],
            squares=self._squares(matrix_view),
            focus=(names[0].index(self.focus_key[0]), names[1].index(self.focus_key[1])),
            first=self.first,
            pinned=int(QUIET in names[1][:1]),
            parts=("", "") if self.figure is Figure.CHANGE else ("call", "wait"),
            legend=CHANGE_LEGEND if self.figure is Figure.CHANGE else LEGEND,
            fresh=None if state.run is None else state.run.last,
        )

    def _squares(self, matrix_view: MatrixView) -> Mapping[Key, tuple[Square, Square, Square]]:
        if self._written is None or self._written[:2] != (matrix_view, self.figure):
            cells = {key: matrix_view.squares(key, self.figure) for key in matrix_view.matrix.cells}
            self._written = (matrix_view, self.figure, cells)
        return self._written[2]

    def _repaint(self) -> None:
        for widget in self.query(Drawn):
            widget.repaint()

    def _arrange(self, width: int, height: int) -> None:
        """The matrix gets what it needs; the chosen cell what is left, and more than a few lines in any case."""
        small = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(small, "small")
        if small:
            return
        matrix_view = self.controller.state.matrix_view
        self.query_one("#below").display = matrix_view is not None
        rows = len(matrix_view.matrix.rows) if matrix_view is not None else 0
        room = height - HEAD - 1
        # Call and wait have a line each where the chosen cell keeps room for its histograms.
        each = 2 if _AROUND + 2 * rows <= room - SHAPE else 1
        below = max(room - _AROUND - each * rows, room // 4, 5)
        self.query_one("#below").styles.height = below
        self.set_class(width >= SIDE_BY_SIDE and below >= SHAPE, "wide")

    def _ask(self) -> None:
        question = self.controller.asked()
        if question is not None:

            def answered(yes: bool | None) -> None:
                if yes:
                    question.then()

            self.app.push_screen(Ask(question.sentence, question.yes), answered)

    # What the keys do.

    def action_check_run(self) -> None:
        """Choose how much, and begin."""
        if self.controller.state.run is not None:
            self.controller.say("A check runs already.")
            return
        state = self.controller.state
        title = f"Run the check? Seed {SEED} orders its cells. The monitor's engine ends meanwhile."
        if state.unsaved:
            title += f" {_UNSAVED}"
        options = [
            (_QUICK, "quick: a few victims beside the usual suspects, some seconds"),
            (_WHOLE, "whole: every victim beside everything that this machine can do, a minute or two"),
        ]
        self.app.push_screen(Choose(title, options), self._chosen)

    def _chosen(self, answer: str | None) -> None:
        source = self.source
        if answer is None or not isinstance(source, Live):
            return

        def begin() -> None:
            self._lent = True
            self.figure = Figure.JUDGED
            self.controller.run(answer == _QUICK, SEED, source.lend(1 if answer == _QUICK else 2))

        self.allowed(begin)

    def action_check_stop(self) -> None:
        """End the check."""
        if self.controller.state.run is None:
            self.controller.say("No check runs.")
        else:
            self.controller.stop()

    def action_check_open(self) -> None:
        """Ask for a file, and open it."""
        if self._free():
            question = "Open which check?" + (f" {_UNSAVED}" if self.controller.state.unsaved else "")
            self._prompt(question, "", self.controller.open)

    def action_check_save(self) -> None:
        """Ask for a file, and save to it."""
        if self._free() and self._has_one():
            self._prompt("Save the check to which file?", suggestion(self.controller.state), self.controller.save)

    def action_check_compare(self) -> None:
        """Ask for a file, and compare with it; or compare no longer."""
        if not self._free() or not self._has_one():
            return
        if self.controller.state.comparison is not None:
            self.controller.alone()
        else:
            self._prompt("Compare with which older check?", "", self.controller.compare)

    def _free(self) -> bool:
        if self.controller.state.run is not None:
            self.controller.say("A check runs: stop it, or wait for its end.")
        return self.controller.state.run is None

    def _has_one(self) -> bool:
        if self.controller.state.matrix_view is None:
            self.controller.say("There is no check yet: run one, or open a file.")
        return self.controller.state.matrix_view is not None

    def _prompt(self, question: str, given: str, then: Callable[[str], None]) -> None:
        def answered(path: str | None) -> None:
            if path:
                then(path)

        self.app.push_screen(Prompt(question, given), answered)

    def action_check_differences(self) -> None:
        """All that differs."""
        if self.controller.state.comparison is None:
            self.controller.say("Compare with another check first.")
        else:
            self.app.push_screen(Differences(self.controller.state))

    def action_check_cell(self) -> None:
        """Enter the chosen cell."""
        if self.focus_key is not None and self.controller.state.matrix_view is not None:

            def step(by: int) -> Key:
                self.move(0, by)
                assert self.focus_key is not None
                return self.focus_key

            self.app.push_screen(CellScreen(lambda: self.controller.state.matrix_view, self.focus_key, step))

    def action_check_back(self) -> None:
        """Back to the monitor."""
        if self.controller.state.run is None:
            self.dismiss(self._lent)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.controller.stop()
                self._leaving = True

        self.app.push_screen(Ask(_LEAVE, "stop it"), answered)

    def action_theme(self) -> None:
        """The next theme."""
        next_theme(self.app)

    def action_help(self) -> None:
        """All keys."""
        self.app.push_screen(Help(self.source.replayed, self.settings.keys, matrix=True))

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit()
