"""What the matrix screen works on: the check that runs, the matrix on the table, and the one it is compared with.

Measuring, reading, writing and comparing take seconds or hang; threads of their own do them. The screen asks for a
state and gets what there is: nothing that it calls waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallprobes.errors import EngineFailed, Unsupported
from stallprobes.live.observation import SIM
from stallprobes.matrix.matrix import Cell, Matrix, Status
from stallscope.tui.matrix.services import MatrixServices, Refusal
from stallscope.tui.matrix.view_model import MatrixView, figures

if TYPE_CHECKING:
    from stallprobes.matrix.compare import Comparison
    from stallprobes.matrix.plan import Plan
    from stallprobes.matrix.runner import CheckProgress
    from stallscope.tui.sources.live import EngineTarget

_LEAVE_S = 0.2
_ASK_S = 0.05


@dataclass(frozen=True)
class CheckRun:
    """A check that runs: ``done`` of ``total`` cell measurings, ``left_s`` seconds left (None: not known yet), what it
    does now, and the column that was measured last. ``began_s`` is on the monotonic clock."""

    quick: bool
    seed: int
    began_s: float
    done: int = 0
    total: int = 0
    left_s: float | None = None
    text: str = ""
    last: str | None = None
    stopping: bool = False


@dataclass(frozen=True)
class Question:
    """Something to be answered by yes or no; ``then`` is done at yes."""

    sentence: str
    yes: str
    then: Callable[[], None]


@dataclass(frozen=True, eq=False)
class MatrixState:
    """All that the screen draws.

    ``origin`` is the file that the matrix came from or went to, "" for none; ``unsaved`` says that it was measured
    here and is in no file. ``against`` is the file of the older one in ``comparison``. ``busy`` says what is done with
    a file just now. ``bad`` marks a ``note`` that tells of a failure.
    """

    matrix_view: MatrixView | None = None
    origin: str = ""
    unsaved: bool = False
    comparison: Comparison | None = None
    against: str = ""
    note: str = ""
    bad: bool = False
    busy: str = ""
    run: CheckRun | None = None
    question: Question | None = None


class MatrixController:
    """Does what the matrix screen is told to do, in threads, and keeps the state."""

    def __init__(self, services: MatrixServices) -> None:
        self.services = services
        self.state = MatrixState()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._runner: threading.Thread | None = None

    def run(self, quick: bool, seed: int, lent: Future[EngineTarget]) -> None:
        """Begin a check as soon as the GPU is ``lent``; only one at a time."""
        if self.state.run is not None:
            return
        self._stop = threading.Event()
        self._change(run=CheckRun(quick, seed, time.monotonic()), note="", bad=False)
        self._runner = threading.Thread(
            target=self._run, args=(self.state, quick, seed, lent, self._stop), name="check", daemon=True
        )
        self._runner.start()

    def stop(self) -> None:
        """End the check; what was measured stays."""
        with self._lock:
            run = self.state.run
            if run is not None:
                self.state = replace(self.state, run=replace(run, stopping=True))
        self._stop.set()

    def open(self, path: str) -> None:
        """Put the check of a file on the table."""

        def job() -> None:
            file = _file(path)
            matrix_view = MatrixView.of(self.services.load(file))
            self._change(matrix_view=matrix_view, origin=str(file), unsaved=False, comparison=None, against="", note="")

        self._do(f"opening {path}", job)

    def save(self, path: str, force: bool = False) -> None:
        """Write what is on the table to a file; asks before it overwrites another one."""
        matrix_view = self.state.matrix_view
        if matrix_view is None:
            return

        def job() -> None:
            file = _file(path)
            if not force and file.exists():
                raise Refusal(
                    f"{file} is there already. Overwrite it?", "overwrite it", lambda: self.save(path, force=True)
                )
            self.services.save(matrix_view.matrix, file, force)
            same = self.state.matrix_view is not None and self.state.matrix_view.matrix is matrix_view.matrix
            if same:
                self._change(origin=str(file), unsaved=False)
            self._change(note=f"Saved to {file}.")

        self._do(f"saving {path}", job)

    def compare(self, path: str, force: bool = False) -> None:
        """Compare what is on the table with the older check in a file."""
        matrix_view = self.state.matrix_view
        if matrix_view is None:
            return

        def job() -> None:
            file = _file(path)
            old = self.services.load(file)
            try:
                found = self.services.compare(old, matrix_view.matrix, force)
            except Refusal as refused:
                if refused.yes:
                    refused.anyway = lambda: self.compare(path, force=True)
                raise
            self._change(matrix_view=matrix_view.compared(found), comparison=found, against=str(file), note="")

        self._do(f"comparing with {path}", job)

    def alone(self) -> None:
        """Compare no longer."""
        matrix_view = self.state.matrix_view
        self._change(
            matrix_view=None if matrix_view is None else matrix_view.compared(None),
            comparison=None,
            against="",
            note="",
        )

    def asked(self) -> Question | None:
        """The question that waits for an answer, once."""
        question = self.state.question
        if question is not None:
            self._change(question=None)
        return question

    def say(self, sentence: str, bad: bool = False) -> None:
        """Leave a message."""
        self._change(note=sentence, bad=bad)

    def close(self) -> None:
        """End the check that runs, and this process's engines with it. Waits less than half a second."""
        self._stop.set()
        if self._runner is None:
            return
        self._runner.join(_LEAVE_S)
        if self._runner.is_alive():
            # The interpreter's end waits for the check's own threads, and those for engines that may be hung.
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._runner.join(_LEAVE_S)

    def _change(self, **what: Any) -> None:
        with self._lock:
            self.state = replace(self.state, **what)

    def _do(self, words: str, job: Callable[[], None]) -> None:
        """Do one thing with a file in a thread of its own; one at a time, and not while a check runs."""
        with self._lock:
            free = not self.state.busy and self.state.run is None
            if free:
                self.state = replace(self.state, busy=words, note="", bad=False)
        if free:
            threading.Thread(target=self._guarded, args=(job,), name="controller", daemon=True).start()
        else:
            self.say("A check runs: stop it, or wait for its end." if self.state.run else f"Still {self.state.busy}.")

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Refusal as refused:
            if refused.anyway is not None:
                self._change(question=Question(str(refused), refused.yes, refused.anyway))
            else:
                self._change(note=_sentence(str(refused)), bad=True)
        except OSError as error:
            self._change(note=_sentence(f"{error.filename}: {error.strerror}"), bad=True)
        except Exception as error:
            # A traceback would be written across the screen, and the screen would wait for ever.
            self._change(note=f"A mistake in the program: {type(error).__name__}: {error}", bad=True)
        finally:
            self._change(busy="")

    def _run(
        self, before: MatrixState, quick: bool, seed: int, lent: Future[EngineTarget], stop: threading.Event
    ) -> None:
        note, bad = "", False
        ground: EngineTarget | None = None
        try:
            plan = self.services.plan(quick)
            ground = self._ground(lent, stop)
            if ground is not None:
                blank = MatrixView.of(_blank(plan, ground, seed, quick))
                self._change(matrix_view=blank, origin="", unsaved=False, comparison=None, against="")
                matrix = self.services.run(plan, ground, seed, self._progress, stop.is_set)
                known = self.state.matrix_view
                self._change(matrix_view=_finished(matrix, known), unsaved=True)
                note = _lost(matrix)
                if matrix.interrupted:
                    count = f"{_measured(matrix)} of {len(matrix.cells)} cells"
                    note = f"Stopped: {count} were measured, and stay. {note}".rstrip()
        except (EngineFailed, Unsupported) as error:
            note, bad = _sentence(str(error)), True
        except Exception as error:
            note, bad = f"A mistake in the program: {type(error).__name__}: {error}", True
        if bad:
            note += self._kept(before, ground)
        self._change(run=None, note=note, bad=bad)

    def _ground(self, lent: Future[EngineTarget], stop: threading.Event) -> EngineTarget | None:
        """Wait until the monitor's engine is gone; None when it is not wanted any more."""
        self._step(text="the monitor's engine ends")
        while not stop.is_set():
            try:
                found = lent.result(_ASK_S)
            except NotYet:
                continue
            self._step(text="the check's engine starts")
            return found
        return None

    def _step(self, **what: Any) -> None:
        with self._lock:
            if self.state.run is not None:
                self.state = replace(self.state, run=replace(self.state.run, **what))

    def _progress(self, step: CheckProgress) -> None:
        self._step(done=step.done, total=step.total, left_s=step.left_s, text=step.text)
        cell, matrix_view = step.cell, self.state.matrix_view
        if cell is not None and matrix_view is not None:
            self._change(matrix_view=matrix_view.with_cell(cell))
            self._step(last=cell.column)

    def _kept(self, before: MatrixState, ground: EngineTarget | None) -> str:
        """What is left of a check that failed: its cells, or if there are none what was there before."""
        matrix_view = self.state.matrix_view
        count = 0 if matrix_view is None else _measured(matrix_view.matrix)
        run = self.state.run
        if matrix_view is None or ground is None or not count or run is None:
            self._change(
                matrix_view=before.matrix_view,
                origin=before.origin,
                unsaved=before.unsaved,
                comparison=before.comparison,
                against=before.against,
            )
            return ""
        matrix = replace(
            matrix_view.matrix,
            interrupted=True,
            seconds=time.monotonic() - run.began_s,
            fingerprint=self.services.machine(ground),
        )
        self._change(matrix_view=replace(matrix_view, matrix=matrix), unsaved=True)
        return f" {count} cells were measured before, and stay."


def suggestion(state: MatrixState) -> str:
    """A name for the file of what is on the table."""
    if state.origin:
        return state.origin
    matrix_view = state.matrix_view
    started = matrix_view.matrix.started_at if matrix_view is not None else ""
    what = (
        "simulated"
        if matrix_view is not None and matrix_view.matrix.simulated
        else socket.gethostname().partition(".")[0]
    )
    return f"check-{what}-{started[:16].replace(':', '')}.json"


def _file(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise Refusal(f"{path}: {error}") from error


def _children() -> list[int]:
    """The processes that this one started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(entry.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def _measured(matrix: Matrix) -> int:
    return sum(1 for cell in matrix.cells.values() if cell.repeats)


def _blank(plan: Plan, ground: EngineTarget, seed: int, quick: bool) -> Matrix:
    """The matrix before anything is measured."""
    simulated = ground.backend == SIM
    return Matrix(
        backend="simulated" if simulated else ground.backend,
        fingerprint={"gpu": ground.label},
        started_at=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        seconds=0.0,
        rows=plan.rows,
        columns=plan.columns,
        cells={
            (row.name, column.name): Cell(row.name, column.name, Status.MISSING)
            for row in plan.rows
            for column in plan.columns
        },
        seed=seed,
        repeats=0,
        pace_us=0.0,
        quick=quick,
        profile=ground.options.profile if simulated else None,
        sim_seed=ground.options.seed if simulated else None,
    )


def _finished(matrix: Matrix, known: MatrixView | None) -> MatrixView:
    """The sheet of a whole matrix, with the figures that are known already where a cell is the same."""
    if known is None:
        return MatrixView.of(matrix)
    same = {key: known.figures[key] for key, cell in matrix.cells.items() if known.matrix.cells.get(key) is cell}
    return MatrixView(matrix, {key: same.get(key) or figures(cell) for key, cell in matrix.cells.items()})


def _lost(matrix: Matrix) -> str:
    """A sentence on the cells that do not count, "" where all do."""
    reasons = [cell.reason or "" for cell in matrix.cells.values() if cell.status is Status.INVALID]
    if not reasons:
        return ""
    worst = next((reason for reason in reasons if "engine" in reason), reasons[0])
    several = "cell does" if len(reasons) == 1 else "cells do"
    return f"{len(reasons)} {several} not count: {worst}"
