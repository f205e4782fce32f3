"""What the monitor's keys do. Each method is an action of the table in ``actions``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import App
from textual.screen import Screen

from stallprobes.live.observation import ProbeSet
from stallprobes.live.view_model import MonitorView, report_text
from stallprobes.model import KIB, MIB, MS, PRIMARY, SECONDARY, Kind, Role
from stallprobes.patterns import patterns
from stallscope.tui import probe_sets
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.verdict_log import VerdictLog
from stallscope.tui.sources.live import Live
from stallscope.tui.sources.replay import Replay

if TYPE_CHECKING:
    from stallprobes.live.analyzer import Analyzer
    from stallprobes.live.observation import Observation
    from stallscope.tui.matrix.controller import MatrixController
    from stallscope.tui.settings import Settings

FASTEST_NS, SLOWEST_NS = 50_000, 1_000 * MS
SMALLEST, LARGEST = 4 * KIB, 256 * MIB
SEEK_S = 5.0
THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "monokai")


class Doing(Screen[None]):
    """The actions of the monitor; what they act on is declared here and made there."""

    source: Live | Replay
    settings: Settings
    analyzer: Analyzer | None
    frozen: Analyzer | None
    frozen_why: str
    last: Observation | None
    monitor_view: MonitorView | None
    focus_name: str | None
    keys_of_probes: dict[str, str]
    trap: bool
    controller: MatrixController | None = None
    _trap_at: float | None

    def draw(self) -> None:
        """Draw at once."""
        raise NotImplementedError

    def shared_with(self) -> tuple[str, ...]:
        """Others on the GPU that nobody allowed to disturb."""
        raise NotImplementedError

    def report_head(self) -> list[str]:
        """The first lines of a report."""
        raise NotImplementedError

    def _live(self) -> Live | None:
        return self.source if isinstance(self.source, Live) else None

    def _probe_set(self) -> ProbeSet | None:
        return self.last.probe_set if self.last is not None else None

    def action_probe(self, key: str) -> None:
        """A probe's key: an aggressor's switches it; a victim's brings it into focus, and there switches it."""
        name = next((name for name, known in self.keys_of_probes.items() if known == key), None)
        if name is None:
            return
        live, probe_set = self._live(), self._probe_set()
        probe = probe_set.probe(name) if probe_set is not None else None
        if live is None or probe is None:
            self.focus_name = name
        elif probe.role is Role.AGGRESSOR:
            # The focus stays on the victim, where the effect is to be seen.
            self._switch(name)
        else:
            if self.focus_name == name or not live.wanted(name):
                self._switch(name)
            self.focus_name = name
        self.draw()

    def action_switch(self) -> None:
        """Switch the focused probe."""
        if self.focus_name is not None:
            self._switch(self.focus_name)
            self.draw()

    def _switch(self, name: str) -> None:
        live, probe_set = self._live(), self._probe_set()
        probe = probe_set.probe(name) if probe_set is not None else None
        if live is None or probe is None:
            return
        on = not live.wanted(name)
        if on and probe.role is Role.AGGRESSOR:
            self._if_allowed(lambda: live.switch(name, True))
        else:
            live.switch(name, on)

    def _if_allowed(self, then: Callable[[], None]) -> None:
        """Do ``then``, after a question where others compute on the GPU."""
        others = self.shared_with()
        if not others:
            then()
            return
        from stallscope.tui.common.ask import Ask

        def answered(yes: bool | None) -> None:
            live = self._live()
            if yes and live is not None:
                live.allowed = True
                then()

        self.app.push_screen(Ask(f"Also on this GPU: {', '.join(others)}. Disturb them?"), answered)

    def action_all_off(self) -> None:
        """Everything that disturbs goes off."""
        live = self._live()
        if live is not None:
            live.all_off()

    def action_pick(self) -> None:
        """The picker of patterns and probes."""
        from stallscope.tui.common.picker import Picker

        self.app.push_screen(Picker(), self._picked)

    def _picked(self, choice: tuple[str, str] | None) -> None:
        live, probe_set = self._live(), self._probe_set()
        if choice is None or live is None or probe_set is None:
            return
        first, second = choice
        if first == "probe":
            entry, _, context = second.partition("@")
            known = {"primary": PRIMARY, "secondary": SECONDARY}
            try:
                new = probe_sets.with_probe(probe_set, entry, known[context])
            except ValueError as error:
                self.notify(str(error), severity="warning")
                return
            live.open(new, {name: live.wanted(name) for name in (p.name for p in probe_set.probes)})
            self.focus_name = new.probes[-1].name
            return
        self._open(first, second)

    def _open(self, pattern: str, variant: str) -> None:
        live, probe_set = self._live(), self._probe_set()
        if live is None or probe_set is None:
            return
        new = probe_sets.of_variant(probe_set, patterns()[pattern], patterns()[pattern].variant(variant))
        on = dict.fromkeys(probe_sets.aggressors(new), True)
        if on:
            self._if_allowed(lambda: live.open(new, on))
        else:
            live.open(new, on)

    def action_remedy(self) -> None:
        """The next remedy of the pattern that is on; after the last one, the stall again."""
        probe_set = self._probe_set()
        if probe_set is None or not probe_set.pattern:
            self.notify("No pattern is on; pick one first.", severity="warning")
            return
        story = patterns()[probe_set.pattern]
        round_ = [v.name for v in story.variants if v.kind is Kind.REMEDY]
        stall = next((v.name for v in story.variants if v.kind is Kind.STALL), None)
        round_ = [*round_, stall] if stall is not None else round_
        at = round_.index(probe_set.variant) if probe_set.variant in round_ else -1
        self._open(probe_set.pattern, round_[(at + 1) % len(round_)])

    def action_explain(self) -> None:
        """What happens to the focused probe, and why."""
        self.explain(None)

    def explain(self, focus: str | None) -> None:
        """Open the explanation of ``focus``, by default the focused probe."""
        from stallscope.tui.common.explain import Explain

        probe_set = self._probe_set()
        probe = probe_set.probe(focus or self.focus_name or "") if probe_set is not None else None
        if probe_set is not None and probe is not None:
            log = self.monitor_view.log if self.monitor_view is not None else ()
            self.app.push_screen(Explain(probe_set, probe, log, self._live() is not None), self._explained)

    def _explained(self, remedy: bool | None) -> None:
        if remedy:
            self.action_remedy()

    def action_pause(self) -> None:
        """Stop the view, or go on; in a replay, the recording."""
        if isinstance(self.source, Replay):
            self.source.pause()
        elif self.frozen is not None:
            self.frozen = None
        elif self.analyzer is not None:
            self.frozen = self.analyzer.copy()
            self.frozen_why = f"PAUSED at {time.strftime('%H:%M:%S')}"
        self.draw()

    def action_back(self) -> None:
        """Back in the recording."""
        if isinstance(self.source, Replay):
            self.source.seek(self.source.at_s - SEEK_S)

    def action_forward(self) -> None:
        """On in the recording."""
        if isinstance(self.source, Replay):
            self.source.seek(self.source.at_s + SEEK_S)

    def action_focus_up(self) -> None:
        """The row above."""
        self._move(-1)

    def action_focus_down(self) -> None:
        """The row below."""
        self._move(1)

    def _move(self, by: int) -> None:
        from stallscope.tui.monitor.screen import shown_rows

        names = shown_rows(self.monitor_view)
        if names:
            at = names.index(self.focus_name) if self.focus_name in names else 0
            self.focus_name = names[(at + by) % len(names)]
            self.draw()

    def action_focus_worst(self) -> None:
        """The victim that suffers most."""
        looked_at = self.frozen or self.analyzer
        worst = looked_at.worst if looked_at is not None else None
        if worst is None:
            self.notify("No victim suffers.")
        else:
            self.focus_name = worst
            self.draw()

    def action_quiet(self) -> None:
        """Measure quiet again."""
        if self.analyzer is not None:
            self.analyzer.discard_baselines()

    def action_clear(self) -> None:
        """Begin anew."""
        self.frozen = None
        if self.analyzer is not None:
            self.analyzer.clear()
        self.draw()

    def action_trap(self) -> None:
        """Freeze on the next stall, or rather not."""
        self.trap, self._trap_at = not self.trap, None
        if self.trap:
            self.frozen = None
        self.draw()

    def action_faster(self) -> None:
        """Double the pace."""
        self._pace(0.5)

    def action_slower(self) -> None:
        """Halve the pace."""
        self._pace(2)

    def _pace(self, factor: float) -> None:
        live, row = (
            self._live(),
            self.monitor_view.row(self.focus_name or "") if self.monitor_view is not None else None,
        )
        if live is None or row is None:
            return
        if row.role is Role.AGGRESSOR or row.period_ns <= 0:
            self.notify("Only a victim has a pace to change.", severity="warning")
            return
        period = round(min(max(row.period_ns * factor, FASTEST_NS), SLOWEST_NS))
        live.set_period(row.name, period)
        if self.analyzer is not None:
            # Another pace finds caches and clocks in another state, so it has another quiet.
            self.analyzer.discard_baselines([row.name])
        self.notify(f"{row.title}: {1e9 / period:.0f} calls a second; its quiet is measured again.")

    def action_bigger(self) -> None:
        """Four times the bytes."""
        self._copy_size(4)

    def action_smaller(self) -> None:
        """A quarter of the bytes."""
        self._copy_size(0.25)

    def _copy_size(self, factor: float) -> None:
        live, probe_set, name = self._live(), self._probe_set(), self.focus_name
        probe = probe_set.probe(name) if probe_set is not None and name is not None else None
        if live is None or probe_set is None or probe is None or name is None:
            return
        old = probe_sets.size_of(probe)
        if old is None:
            self.notify("This probe copies nothing.", severity="warning")
            return
        size = int(min(max(old * factor, SMALLEST), LARGEST))
        new = probe_sets.with_size(probe_set, name, size)
        if new is None:
            self.notify("The size of this probe cannot be changed.", severity="warning")
        elif size == old:
            self.notify(f"{SMALLEST // KIB} KiB to {LARGEST // MIB} MiB is the range.", severity="warning")
        else:
            live.open(new, {p.name: live.wanted(p.name) for p in probe_set.probes})
            self.notify(f"{probe.title}: {size // KIB} KiB; a new engine starts.")

    def action_gpu(self) -> None:
        """Choose the GPU."""
        live = self._live()
        if live is None:
            return
        if not live.gpus:
            self.notify("CUDA sees no GPU to choose.", severity="warning")
            return
        from stallscope.tui.common.choose import Choose

        options = [(gpu.uuid, f"{gpu.label}  {gpu.pci}") for gpu in live.gpus]

        def chosen(uuid: str | None) -> None:
            if uuid is not None:
                live.choose(uuid)

        self.app.push_screen(Choose("Which GPU?", options), chosen)

    def action_restart(self) -> None:
        """A new engine."""
        live = self._live()
        if live is not None:
            live.restart()

    def action_copy(self) -> None:
        """The report to the clipboard, as far as the terminal lets us."""
        if self.monitor_view is not None:
            self.app.copy_to_clipboard(report_text(self.monitor_view, self.report_head()))
            self.notify("The report was sent to the terminal's clipboard (OSC 52).")

    def action_screenshot(self) -> None:
        """The screen as SVG."""
        name = time.strftime("stallscope-%Y%m%d-%H%M%S.svg")
        try:
            self.app.save_screenshot(name, path=os.getcwd())
        except OSError as error:
            self.notify(f"{name} cannot be written: {error.strerror}", severity="error")
        else:
            self.notify(f"Saved {name}")

    def action_matrix(self) -> None:
        """The matrix of a check."""
        from stallscope.tui.matrix.controller import MatrixController
        from stallscope.tui.matrix.screen import MatrixScreen
        from stallscope.tui.matrix.services import MatrixServices

        if self.controller is None:
            self.controller = MatrixController(MatrixServices())
        screen = MatrixScreen(self.controller, self.source, self.settings, self._if_allowed)
        self.app.push_screen(screen, self._checked)

    def _checked(self, engine_is_gone: bool | None) -> None:
        live = self._live()
        if engine_is_gone and live is not None:
            live.restart()
            self.notify("A new engine starts: the check had the GPU for itself. Quiet is measured again.")

    def action_theme(self) -> None:
        """The next theme."""
        next_theme(self.app)

    def action_help(self) -> None:
        """All keys."""
        from stallscope.tui.common.help import Help

        self.app.push_screen(Help(self.source.replayed, self.settings.keys))

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit()

    def on_probe_table_picked(self, message: ProbeTable.Picked) -> None:
        """A click on a row."""
        self.focus_name = message.name
        if message.toggle and self._live() is not None:
            self._switch(message.name)
        self.draw()

    def on_verdict_log_picked(self, message: VerdictLog.Picked) -> None:
        """A click on a verdict: explain it."""
        probe_set = self._probe_set()
        if probe_set is not None and probe_set.probe(message.entry.verdict.probe) is not None:
            self.focus_name = message.entry.verdict.probe
            self.explain(self.focus_name)


def next_theme(app: App[object]) -> None:
    """Go to the theme after the one that is on."""
    at = THEMES.index(app.theme) if app.theme in THEMES else -1
    app.theme = THEMES[(at + 1) % len(THEMES)]
