"""All keys, and how to read the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType

from stallscope.tui import settings
from stallscope.tui.actions import AGGRESSOR_KEYS, CHECK_ACTIONS, HOST_KEY, VICTIM_KEYS, known, shown
from stallscope.tui.actions import keys_of as keys
from stallscope.tui.common.dialog import Reading, section

_READ = (
    (
        "States",
        "quiet: as in the quiet base. slower: half as slow again or more. STALLED: three times or more. STARVED: fewer "
        "than 3 calls returned in half a second. host noise: the host control, which makes no CUDA call, slowed down "
        "too. baseline: quiet is being measured. after quiet: switched on, and waits for that.",
    ),
    (
        "Phases",
        "call: host time inside the API. wait: from the API's return until the host sees the work done. gpu: time on "
        "the GPU by event pairs. due: from when the call was meant to start, with the time that later calls waited.",
    ),
    (
        "Figures",
        "Of the last second. in flight: the age of a call that has not come back. × quiet: p50 against the quiet base, "
        "which is measured once, and again with its key. p99.9 needs 1000 calls.",
    ),
    (
        "Pictures",
        "All axes are logarithmic and fixed, 100 ns to 10 s. ░ is quiet, full blocks are now, ◆ is a call in flight. "
        "Heights are square roots, so that a single late call is seen. In the map ░ is a few calls a second, █ a "
        "thousand.",
    ),
    (
        "GPU %",
        "NVML's utilisation: the share of its window in which some kernel ran. One thread that spins reads 100 %.",
    ),
)
_READ_MATRIX = (
    (
        "Rows and columns",
        "Each row is a call that is measured, each column what ran beside it. The first column is the call beside "
        "nothing. Each cell is measured several times, in random order, against its own quiet just before and after.",
    ),
    (
        "Figures",
        "× quiet: how many times slower than its own quiet. As judged: the figure that the verdict names, p50 where "
        "all is quiet. c is the time inside the call, w the time until the host sees the work done. !! stalled: three "
        "times or more. !* only one call in a hundred is. ! slower: half as slow again or more. ? as slow before and "
        "after. ~ the machine itself was slower.",
    ),
    (
        "Words",
        "STARVED: fewer than 3 calls returned in half a second. invalid: it was run, and does not count; the cell says "
        "why. – is not possible on this machine, · is not measured.",
    ),
    (
        "Compared",
        "SLOWER and FASTER: more than chance explains, with the rate of false alarms that is said for the whole. "
        "UNSURE: too few calls or too much noise to tell. STARVES: it did not before. The figure is new over old.",
    ),
)


class Help(Reading[None]):
    """The keys come from the table of actions: the monitor's, or with ``matrix`` those of the check's matrix."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "close")]

    def __init__(self, replayed: bool, changed: Mapping[str, str], matrix: bool = False) -> None:
        super().__init__()
        self.replayed = replayed
        self.changed = changed
        self.matrix = matrix

    def rows(self) -> list[tuple[str, str]]:
        """Keys, and what they do."""
        rows = [] if self.matrix else self._probes()
        for action in known(self.replayed, CHECK_ACTIONS) if self.matrix else known(self.replayed):
            rows.append((" ".join(shown(key) for key in keys(action, self.changed).split(",")), action.what))
        return [*rows, ("ctrl+p", "The command palette: all of this by name.")]

    def _probes(self) -> list[tuple[str, str]]:
        switches = "Switch one that disturbs." if not self.replayed else "Focus one that disturbs."
        again = "" if self.replayed else "; once more, or when it is off, switch it"
        return [
            (f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[-1]}", switches),
            (f"{VICTIM_KEYS[0]} {VICTIM_KEYS[1]} … {HOST_KEY}", f"Focus one that is measured{again}."),
        ]

    def text(self) -> Text:
        """Keys first."""
        text = Text("Keys\n", "bold")
        for names, what in self.rows():
            text.append(f"  {names:<10}{what}\n")
        return text.append_text(_rest(_READ_MATRIX if self.matrix else _READ))

    def body(self) -> RenderableType:
        """The keys as a table, so that long lines stay beside their keys."""
        table = Table.grid(padding=(0, 2))
        for names, what in self.rows():
            table.add_row(Text(f"  {names}", "bold", no_wrap=True), what)
        return Group(Text("Keys", "bold"), table, _rest(_READ_MATRIX if self.matrix else _READ))


def _rest(read: Sequence[tuple[str, str]]) -> Text:
    text = Text("\n")
    for title, body in read:
        section(text, title, body)
    file = f"{settings.path()} (stallscope settings prints one with all defaults)"
    section(text, "Settings and other keys", file)
    return text
