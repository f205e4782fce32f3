"""Editor of the monitor's probe set: loads patterns, remedies and probes, and scales call rates and copy sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.model import KIB, PRIMARY, SECONDARY, Role
from stallprobes.patterns import patterns
from stallscope.tui import probe_sets

if TYPE_CHECKING:
    from stallscope.tui.monitor.screen import Monitor


class ProbeSetEditor:
    """Changes the probe set of ``screen``. On a recording it does nothing."""

    def __init__(self, screen: Monitor) -> None:
        self._screen = screen

    def pick(self) -> None:
        """Open the picker of patterns and probes, and load what is selected."""
        from stallscope.tui.common.picker import Picker

        self._screen.app.push_screen(Picker(), self._load_selected)

    def _load_selected(self, choice: tuple[str, str] | None) -> None:
        screen = self._screen
        live = screen.live
        if choice is None or live is None or screen.probe_set is None:
            return
        first, second = choice
        if first != "probe":
            self._load_variant(first, second)
            return
        entry, _, context = second.partition("@")
        probe_set, on = live.requested()
        try:
            new = probe_sets.with_probe(probe_set, entry, SECONDARY if context == "secondary" else PRIMARY)
        except ValueError as error:
            screen.notify(str(error), severity="warning")
            return
        live.load(new, on)
        screen.focus_name = new.probes[-1].name

    def _load_variant(self, pattern: str, variant: str) -> None:
        live = self._screen.live
        if live is None or self._screen.probe_set is None:
            return
        new = probe_sets.for_variant(live.requested()[0], patterns()[pattern], patterns()[pattern].variant(variant))
        on = dict.fromkeys(probe_sets.aggressors(new), True)
        if on:
            self._screen.if_sharing_allowed(lambda: live.load(new, on))
        else:
            live.load(new, on)

    def load_remedy(self) -> None:
        """Load the pattern's next remedy; after the last one, the stall."""
        live = self._screen.live
        if live is None or self._screen.probe_set is None:
            return
        probe_set = live.requested()[0]
        remedy = probe_sets.next_remedy(probe_set)
        if remedy is None:
            self._screen.notify("Select a pattern first (o).", severity="warning")
        else:
            self._load_variant(probe_set.pattern, remedy)

    def scale_period(self, factor: float) -> None:
        """Multiply the time between the calls of the focused victim by ``factor``."""
        screen = self._screen
        row = screen.monitor_view.row(screen.focus_name or "") if screen.monitor_view is not None else None
        if screen.live is None or row is None:
            return
        if row.role is Role.AGGRESSOR or row.period_ns <= 0:
            screen.notify("Only victims have a call rate.", severity="warning")
            return
        if not screen.switches.engine_usable():
            return
        # Not the row's: several keys may come before it is drawn again.
        old = screen.live.period_ns(row.name)
        if old is None:
            return
        try:
            period = probe_sets.scaled_period_ns(old, factor)
        except ValueError as error:
            screen.notify(str(error), severity="warning")
            return
        rate = 1e9 / period
        sentence = f"{row.title}: {rate:.{0 if rate >= 10 else 1}f} calls/s."
        if screen.live.set_period(row.name, period):
            sentence += " Its baseline is measured again."
            if screen.analyzer is not None:
                # Caches and clocks depend on the call rate, so the baseline does too.
                screen.analyzer.discard_baselines([row.name])
        screen.notify(sentence)

    def scale_size(self, factor: float) -> None:
        """Multiply the copy size of the focused probe by ``factor``."""
        screen = self._screen
        live, name = screen.live, screen.focus_name
        if live is None or screen.probe_set is None or name is None:
            return
        probe_set, on = live.requested()
        try:
            new, size = probe_sets.with_scaled_size(probe_set, name, factor)
        except ValueError as error:
            screen.notify(str(error), severity="warning")
            return
        live.load(new, on)
        screen.notify(f"{name}: {size // KIB} KiB. The engine restarts.")
