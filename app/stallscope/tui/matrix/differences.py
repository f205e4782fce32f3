"""All that differs between two checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from stallscope.tui.common.dialog import Reading, section
from stallscope.tui.matrix.cell_text import differences, tally
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.view_model import Key


class Differences(Reading[None]):
    """Their fingerprints first, then how many cells changed, then the cells that only one of them has."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "close", "close")]

    def __init__(self, state: MatrixState) -> None:
        super().__init__()
        self.state = state

    def text(self) -> Text:
        """Fingerprints, counts, cells."""
        text, found = Text(), self.state.comparison
        assert found is not None
        now = self.state.origin or "the check that was measured here"
        section(text, "Compared", f"{self.state.against} → {now}")
        section(text, "What differs in the fingerprints", "\n".join(differences(found)) or "nothing")
        rate = f"By chance alone at most {found.false_alarm_rate:.0%} of comparisons say SLOWER or FASTER anywhere."
        section(text, "Cells", f"{tally(found)}. {rate}")
        for title, there in (("Only in the old one", found.only_old), ("Only in the new one", found.only_new)):
            section(text, title, "\n".join(_by_column(there)))
        return text


def _by_column(cells: Iterable[Key]) -> list[str]:
    """Cells with a line for each column."""
    found: dict[str, list[str]] = {}
    for row, column in cells:
        found.setdefault(column, []).append(row)
    return [f"beside {column}: {', '.join(rows)}" for column, rows in found.items()]
