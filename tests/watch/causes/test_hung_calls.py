"""Calls that have not returned, in the sentences of the screen: no stall is hidden by the lack of a finished call."""

from __future__ import annotations

import pytest

from factories.watch_calls import SYNC, at_ns, batch, call, process, thread
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.live.live_view import LiveRows
from stallscope.tui.watch.explain_call import explained
from stallscope.tui.watch.panels import entries_of, headlines


def hung(ended: bool) -> WatchFindings:
    """A process whose only call has not returned for a second."""
    analysis = ProcessAnalysis()
    analysis.feed(process(thread(in_flight=[call(SYNC, 0)], name="hung")), batch([]), at_ns(1_000_000), {})
    return watch_findings([analysis.findings().changed(ended=ended)], 0, ())


@pytest.mark.parametrize("ended", [False, True])
def test_a_call_that_has_not_returned_is_on_every_part_of_the_screen(ended: bool) -> None:
    found = hung(ended)
    said = "had not returned when the process ended, after 1.00 s" if ended else "has not returned for 1.00 s"
    assert headlines(found, None) == [(f"{SYNC} in hung (thread 100) {said}.", "bad")]
    ((head, text, key, _),) = entries_of(found, at_ns(1_000_000))
    assert (head, text.endswith("when the process ended.")) == ("at its end" if ended else "in flight", ended)
    (row,) = LiveRows().recorded(found, None)
    assert row.key == key
    assert text in explained(row, found).plain
