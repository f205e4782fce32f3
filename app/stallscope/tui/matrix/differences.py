"""The dialog of all differences between two checks."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from stallprobes.wording import comparison_wording
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableText
from stallscope.tui.matrix.controller import MatrixState


class Differences(TextDialog[None]):
    """Shows the fingerprints' differences, the number of changed cells, and cells that only one check has."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "close", "close")]

    def __init__(self, state: MatrixState) -> None:
        super().__init__()
        self.state = state

    def text(self) -> PrintableText:
        """Fingerprints, counts, cells."""
        text, found = PrintableText(), self.state.comparison
        assert found is not None
        now = self.state.origin or "this check"
        section(text, "QuantileChange", f"{self.state.against} → {now}")
        section(
            text,
            "Differences of the fingerprints",
            "\n".join(map(comparison_wording.difference_line, found.differences)) or "none",
        )
        rate = f"Of comparisons without a change at most {found.false_alarm_rate:.0%} have a SLOWER or FASTER cell."
        section(text, "Cells", f"{comparison_wording.change_counts(found)}. {rate}")
        for title, there in (("Only in the old check", found.only_old), ("Only in the new check", found.only_new)):
            section(text, title, "\n".join(comparison_wording.places_by_column(there)))
        return text
