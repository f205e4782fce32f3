"""The blame experiment on the screen: it runs in a thread beside the live engine, and dialogs show plan and result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size

from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed, Stopped
from stallprobes.live.analyzer import Analyzer
from stallprobes.measurement import blame as experiment
from stallprobes.measurement.blame import BlameProgress
from stallprobes.model import Probe, Role
from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallprobes.verdicts.blame import Blame
from stallprobes.verdicts.candidates import aggressor_groups
from stallprobes.verdicts.experiment import BlamePlan
from stallscope.report.blame_table import blame_lines
from stallscope.tui.common.dialog import Ask, Dialog
from stallscope.tui.common.lines import Line, LineWidget
from stallscope.tui.common.printable_text import PrintableStatic
from stallscope.tui.sources.live import LiveSource

# Title of the dialog about a blame experiment.
_TITLE = "Blame: which aggressor is the cause?"
# Longest wait (s) for the end of a stopped blame experiment: its calls in flight must return first.
_END_S = 2.0


class BlameControl:
    """Runs experiments in a thread; ``warn`` shows a sentence, and ``show`` a dialog, as ``push_screen`` does."""

    def __init__(self, warn: Callable[[str], None], show: Callable[..., object]) -> None:
        self._warn, self._show = warn, show
        # The experiment from its start until its result is shown.
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._progress: BlameProgress | None = None
        self._result: Blame | None = None
        self._problem = ""

    @property
    def status(self) -> str:
        """The progress of the experiment in a few words, "" without one."""
        if self._thread is None:
            return ""
        if self._stop.is_set():
            return "blame: restoring the aggressors"
        progress = self._progress
        if progress is None:
            return "blame: starting, esc ends it"
        return f"blame {progress.done}/{progress.total}, {progress.left_s:.0f} s left, esc ends it"

    def toggle(self, live: LiveSource, last: Observation) -> None:
        """Show the plan of an experiment with the aggressors that are on, and start it; or stop the one that runs."""
        if self._thread is not None:
            self.stop()
            return
        if last.snapshot is None or last.engine.state != EngineCondition.READY:
            self._warn("Blame needs a running engine.")
            return
        parts = last.snapshot.probes
        on = [probe for probe in last.probe_set.probes if live.is_on(probe.name) and parts[probe.name].error is None]
        aggressors = [probe for probe in on if probe.role is Role.AGGRESSOR]
        victims = [probe for probe in on if probe.role is Role.VICTIM]
        if not aggressors or not victims:
            missing = "a victim" if aggressors else "at least one aggressor"
            self._warn(f"Blame switches aggressors off and on again: switch {missing} on first.")
        elif last.waiting:
            self._warn("The aggressors wait for the baseline: blame can start when they run.")
        else:
            plan = experiment.plan_of(aggressors, victims, live.options.together)
            self._show(
                Ask(plan_text(plan, aggressors), "start"),
                lambda start: self._start(live, last.probe_set, aggressors, victims) if start else None,
            )

    def _start(
        self, live: LiveSource, probe_set: ProbeSet, aggressors: Sequence[Probe], victims: Sequence[Probe]
    ) -> None:
        session = live.begin_experiment(probe_set)
        if session is None:
            self._warn("The engine was replaced or has ended: blame was not started.")
            return
        self._stop.clear()
        self._progress, self._result, self._problem = None, None, ""
        measured = (live, session, aggressors, victims)
        self._thread = threading.Thread(target=self._measure, args=measured, name="blame", daemon=True)
        self._thread.start()

    def _measure(
        self, live: LiveSource, session: Session, aggressors: Sequence[Probe], victims: Sequence[Probe]
    ) -> None:
        try:
            self._result = experiment.measure(
                session, aggressors, victims, progress=self._update, stop=self._stop.is_set
            )
        except Stopped:
            pass
        except EngineFailed as error:
            self._problem = f"Blame ended early: {error.sentence}"
        finally:
            live.end_experiment()

    def _update(self, progress: BlameProgress) -> None:
        self._progress = progress

    def stop(self) -> bool:
        """Stop the experiment, if one runs; returns at once, whether there was one to stop."""
        stopped = self._thread is not None and not self._stop.is_set()
        self._stop.set()
        return stopped

    def stop_and_wait(self) -> None:
        """Stop the experiment, if one runs, and wait until the aggressors are restored, at most _END_S."""
        self.stop()
        if self._thread is not None:
            self._thread.join(_END_S)

    def blocks_switches(self) -> bool:
        """True if an experiment runs, which no other switch may disturb; the screen then says so."""
        if self._thread is not None:
            self._warn("The blame experiment switches the probes; esc ends it.")
        return self._thread is not None

    def finish(self, analyzer: Analyzer | None, last: Observation | None) -> None:
        """Show the result of an experiment that has ended, and put it into the log of ``analyzer``.

        The aggressors are then as they were before.
        """
        if self._thread is None or self._thread.is_alive():
            return
        self._thread = None
        if self._result is None or analyzer is None or last is None:
            self._warn(self._problem or "Blame was stopped. The aggressors are as they were.")
            return
        analyzer.judgement.add_blame(self._result, last.wall_s)
        self._show(BlameResult(self._result))


def plan_text(plan: BlamePlan, aggressors: Sequence[Probe]) -> str:
    """The states of an experiment, their number and the time."""
    names = ", ".join(group.name for group in aggressor_groups(aggressors))
    several = ", each alone, each off with the others on" if len(aggressors) > 1 else ""
    return (
        f"{_TITLE}\n\nAggressors: {names}.\n\n"
        f"States: all off, all on{several}. {len(plan.states)} states × {len(plan.rounds)} rounds of "
        f"{plan.window_s:.2f} s, interleaved: about {plan.total_s:.0f} s.\n\n"
        "The aggressors are restored afterwards."
    )


class BlameResult(Dialog[None]):
    """The result of an experiment: the table that ``run --blame`` prints, what stalls worst first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,B", "close", "close")]

    def __init__(self, result: Blame) -> None:
        # Its rows need the whole width of a narrow terminal.
        super().__init__(classes="filled")
        self.result = result

    def compose(self) -> ComposeResult:
        """What was done, and the table."""
        result = self.result
        restored = "The aggressors are as they were."
        with Vertical(id="box") as box, VerticalScroll(id="scroll"):
            box.border_title = _TITLE
            yield PrintableStatic(f"{result.rounds} rounds in {result.seconds:.1f} s. {restored}\n")
            yield BlameLines(result)


class BlameLines(LineWidget):
    """The table of a result, of as many lines as it needs."""

    def __init__(self, result: Blame) -> None:
        super().__init__()
        self._result = result

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The number of lines at ``width``."""
        return len(blame_lines(self._result, width))

    def lines(self, width: int, height: int) -> list[Line]:
        """The table."""
        return blame_lines(self._result, width)
