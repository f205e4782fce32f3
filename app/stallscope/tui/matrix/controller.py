"""Controller of the matrix screen: the running check, and the open matrix.

Measuring, reading and writing may take seconds or hang, so each runs in its own thread. No method that the
screen calls waits, except ``close``.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallprobes.engine.process import signal_engines
from stallprobes.errors import CheckFileError, EngineFailed, StallprobesError, Unsupported, kind_and_text, reason_of
from stallprobes.files import atomic
from stallprobes.machine.origin import BACKENDS
from stallprobes.matrix.matrix import Cell, Matrix, Status
from stallprobes.recording.observation import SIM
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui.matrix.view_model import Key, MatrixView

if TYPE_CHECKING:
    from stallprobes.matrix.check.plan import Plan
    from stallprobes.matrix.check.progress import CheckProgress
    from stallscope.tui.sources.engine_thread import EngineTarget

# Longest wait (s) for the end of the check's thread when the screen is left. If the thread still runs, the screen kills
# the engines (processes that run the probes) and waits once more.
_LEAVE_S = 0.2
# Period (s) at which a check that waits for the GPU asks whether the user has stopped the check.
_ASK_S = 0.05


@dataclass(frozen=True)
class CheckRun:
    """A running check: ``done`` of ``total`` cell measurements, ``left_s`` seconds left (None: not known yet).

    ``text`` names the current step, ``last`` the column measured last, ``stall`` the newest cell that stalls (None: no
    cell yet). ``began_s`` is on the monotonic clock.
    """

    began_s: float
    done: int = 0
    total: int = 0
    left_s: float | None = None
    text: str = ""
    last: str | None = None
    stall: Key | None = None
    stopping: bool = False


@dataclass(frozen=True, eq=False)
class MatrixState:
    """State that the screen draws.

    ``origin`` is the file that holds the matrix, "" for none; ``unsaved``: it was measured here and is in no file.
    ``busy`` names the file operation that runs. ``failed``: the ``note`` reports a failure. ``unmeasured``: it is the
    last saved check, which nobody measured or opened now. ``question`` is a sentence, the answer yes, and what follows
    that.
    """

    matrix_view: MatrixView | None = None
    origin: str = ""
    unsaved: bool = False
    note: str = ""
    failed: bool = False
    busy: str = ""
    run: CheckRun | None = None
    question: tuple[str, str, Callable[[], None]] | None = None
    unmeasured: bool = False


class MatrixController:
    """Runs the requests of the matrix screen in threads, and holds the state."""

    def __init__(self) -> None:
        self.state = MatrixState()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._runner: threading.Thread | None = None
        # Whether the last saved check is being read.
        self._reads_saved = False

    @property
    def reads(self) -> bool:
        """True if a file operation runs, or the last saved check is being read."""
        return self._reads_saved or bool(self.state.busy)

    def activity(self) -> str:
        """Progress of a running check, for the view's title; "" while none runs."""
        run = self.state.run
        return "" if run is None else f" {min(1.0, run.done / run.total) if run.total else 0:.0%}"

    def run(self, quick: bool, seed: int, lent: Future[EngineTarget]) -> None:
        """Start a check as soon as the GPU is free; only one at a time."""
        if self.state.run is not None:
            return
        self._stop = threading.Event()
        self._change(run=CheckRun(time.monotonic()), note="", failed=False)
        self._runner = threading.Thread(
            target=self._run, args=(self.state, quick, seed, lent, self._stop), name="check", daemon=True
        )
        self._runner.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Stop the engines of a running check, or let them continue. The check rejects the windows in between."""
        if self.state.run is not None:
            signal_engines(number)

    def stop(self) -> None:
        """Stop the check; measured cells are kept."""
        self._step(stopping=True)
        self._stop.set()

    def show_saved(self) -> None:
        """Show the last saved check until there is another one."""

        def job() -> None:
            check = saved_check()
            with self._lock:
                # What was opened or begun meanwhile stays.
                if check is not None and self.state.matrix_view is None and self.state.run is None:
                    view, origin = check
                    self.state = replace(self.state, matrix_view=view, origin=origin, unmeasured=True)

        def ended() -> None:
            self._reads_saved = False

        self._reads_saved = True
        threading.Thread(target=self._run_job, args=(job, ended), name="saved check", daemon=True).start()

    def open(self, path: str) -> None:
        """Open the check in a file."""

        def job() -> None:
            from stallprobes.matrix import check_file

            file = _file(path)
            matrix_view = MatrixView.of(check_file.load(file))
            self._change(matrix_view=matrix_view, origin=str(file), unsaved=False, note="", unmeasured=False)

        self._start_job(f"opening {path}", job)

    def save(self, path: str, force: bool = False) -> None:
        """Save the open check to a file; asks before it overwrites another file."""
        matrix_view = self.state.matrix_view
        if matrix_view is None:
            return

        def job() -> None:
            from stallprobes.matrix import check_file

            file = _file(path)
            atomic.named_file(path)
            if not force and file.exists():
                sentence = f"{file} is there already. Overwrite it?"
                self._change(question=(sentence, "overwrite it", lambda: self.save(path, force=True)))
                return
            check_file.save(matrix_view.matrix, file, force=force)
            check_file.remember(file)
            same = self.state.matrix_view is not None and self.state.matrix_view.matrix is matrix_view.matrix
            if same:
                self._change(origin=str(file), unsaved=False)
            self._change(note=f"Saved to {file}.")

        self._start_job(f"saving {path}", job)

    def take_question(self) -> tuple[str, str, Callable[[], None]] | None:
        """The pending question, once."""
        question = self.state.question
        if question is not None:
            self._change(question=None)
        return question

    def show_message(self, sentence: str) -> None:
        """Show a message in the header."""
        self._change(note=sentence, failed=False)

    def close(self) -> None:
        """End the running check and its engines. Waits less than half a second."""
        self._stop.set()
        if self._runner is None:
            return
        self._runner.join(_LEAVE_S)
        if self._runner.is_alive():
            # At exit the interpreter waits for the threads of the check, and those for engines that may hang.
            signal_engines(signal.SIGKILL)
            self._runner.join(_LEAVE_S)

    def _change(self, **what: Any) -> None:
        with self._lock:
            self.state = replace(self.state, **what)

    def _start_job(self, words: str, job: Callable[[], None]) -> None:
        """Run a file operation in its own thread; one at a time, and not while a check runs."""
        with self._lock:
            free = not self.state.busy and self.state.run is None
            if free:
                self.state = replace(self.state, busy=words, note="", failed=False)
        if free:
            ended = partial(self._change, busy="")
            threading.Thread(target=self._run_job, args=(job, ended), name="controller", daemon=True).start()
        else:
            self.show_message(
                "A check is running: stop it, or wait for its end." if self.state.run else f"Still {self.state.busy}."
            )

    def _run_job(self, job: Callable[[], None], ended: Callable[[], None]) -> None:
        try:
            job()
        except StallprobesError as error:
            self._change(note=_sentence(str(error)), failed=True)
        except OSError as error:
            self._change(note=_sentence(f"{error.filename}: {reason_of(error)}"), failed=True)
        except Exception as error:
            # A traceback would be written across the screen, and ``busy`` would never end.
            self._change(note=f"Internal error: {kind_and_text(error)}", failed=True)
        finally:
            ended()

    def _run(
        self, before: MatrixState, quick: bool, seed: int, lent: Future[EngineTarget], stop: threading.Event
    ) -> None:
        note, failed = "", False
        target: EngineTarget | None = None
        try:
            from stallprobes.matrix.check import plan as plans
            from stallprobes.matrix.check import runner

            plan = plans.plan(quick=quick)
            target = self._wait_for_gpu(lent, stop)
            if target is not None:
                blank = MatrixView.of(_blank(plan, target, seed, quick))
                self._change(matrix_view=blank, origin="", unsaved=False, unmeasured=False)
                matrix = runner.run(
                    plan,
                    backend=target.backend,
                    options=target.options,
                    seed=seed,
                    progress=self._progress,
                    cells=True,
                    stop=stop.is_set,
                    survey=target.survey,
                )
                view = self.state.matrix_view
                self._change(matrix_view=_finished(matrix, view), unsaved=True)
                note = _uncounted(matrix)
                if matrix.interrupted:
                    count = f"{_measured(matrix)} of {len(matrix.cells)} cells"
                    note = f"Stopped: {count} are kept. {note}".rstrip()
        except (EngineFailed, Unsupported) as error:
            note, failed = _sentence(str(error)), True
        except Exception as error:
            note, failed = f"Internal error: {kind_and_text(error)}", True
        if failed:
            note += self._keep_or_restore(before, target)
        self._change(run=None, note=note, failed=failed)

    def _wait_for_gpu(self, lent: Future[EngineTarget], stop: threading.Event) -> EngineTarget | None:
        """The target, once the monitor's engine has ended; None if the check was stopped meanwhile."""
        self._step(text="the monitor's engine ends")
        while not stop.is_set():
            try:
                target = lent.result(_ASK_S)
            except NotYet:
                continue
            self._step(text="the check's engine starts")
            return target
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
            stalls = isinstance(cell.kind, VerdictKind) and cell.kind.severity >= VerdictKind.STALLED.severity
            self._step(last=cell.column, **({"stall": cell.key} if stalls else {}))

    def _keep_or_restore(self, before: MatrixState, target: EngineTarget | None) -> str:
        """After a failure: keep the measured cells, or restore the state from ``before`` if there are none."""
        from stallprobes.machine.fingerprint import fingerprint

        matrix_view = self.state.matrix_view
        count = 0 if matrix_view is None else _measured(matrix_view.matrix)
        run = self.state.run
        if matrix_view is None or target is None or not count or run is None:
            with self._lock:
                self.state = replace(before, run=run, busy=self.state.busy, question=self.state.question)
            return ""
        matrix = matrix_view.matrix.changed(
            interrupted=True,
            seconds=time.monotonic() - run.began_s,
            # As far as it is known without an engine.
            fingerprint=fingerprint(
                target.options.gpu.split(",")[0] if target.options.gpu else None, {}, target.survey
            ),
        )
        self._change(matrix_view=_finished(matrix, matrix_view), unsaved=True)
        return f" {count} measured cells are kept."


def saved_check() -> tuple[MatrixView, str] | None:
    """The last saved check and its file, None without one. Takes about half a millisecond a cell."""
    from stallprobes.matrix import check_file

    path = check_file.last_saved()
    # Another process may have replaced the file.
    with suppress(CheckFileError):
        return None if path is None else (MatrixView.of(check_file.load(path)), str(path))
    return None


def suggestion(state: MatrixState) -> str:
    """Default file name for the open check."""
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
        raise CheckFileError(f"{path}: {error}") from error


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def _measured(matrix: Matrix) -> int:
    return sum(1 for cell in matrix.cells.values() if cell.repeats)


def _blank(plan: Plan, target: EngineTarget, seed: int, quick: bool) -> Matrix:
    """The matrix before the first measurement."""
    simulated = target.backend == SIM
    return Matrix(
        backend=BACKENDS[target.backend],
        fingerprint={"gpu": target.label},
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
        pace_ns=0,
        quick=quick,
        profile=target.options.profile if simulated else None,
        sim_seed=target.options.seed if simulated else None,
    )


def _finished(matrix: Matrix, view: MatrixView | None) -> MatrixView:
    """The view of a finished check; cells that did not change keep their figures."""
    if view is None:
        return MatrixView.of(matrix)
    same = {key: view.figures[key] for key, cell in matrix.cells.items() if view.matrix.cells.get(key) is cell}
    return MatrixView.of(matrix, same)


def _uncounted(matrix: Matrix) -> str:
    """A sentence on the cells that were not counted, "" if there are none."""
    reasons = [cell.reason or "" for cell in matrix.cells.values() if cell.status is Status.INVALID]
    if not reasons:
        return ""
    worst = next((reason for reason in reasons if "engine" in reason), reasons[0])
    several = "cell was" if len(reasons) == 1 else "cells were"
    return f"{len(reasons)} {several} not counted: {worst}"
