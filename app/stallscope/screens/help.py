"""All keys, and how to read the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from stallscope import settings
from stallscope.actions import AGGRESSOR_KEYS, HOST_KEY, VICTIM_KEYS, known, shown
from stallscope.actions import keys_of as keys
from stallscope.screens.dialog import Reading, section

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
        "of the last second. in flight: the age of a call that has not come back. × quiet: p50 against the quiet base, "
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


class Help(Reading[None]):
    """The keys come from the table of actions."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "close")]

    def __init__(self, replayed: bool, changed: Mapping[str, str]) -> None:
        super().__init__()
        self.replayed = replayed
        self.changed = changed

    def text(self) -> Text:
        """Keys first."""
        text = Text()
        text.append("Keys\n", "bold")
        switches = "switch one that disturbs" if not self.replayed else "focus one that disturbs"
        rows = [(f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[-1]}", f"{switches[0].upper()}{switches[1:]}.")]
        again = "" if self.replayed else "; once more, or when it is off, switch it"
        rows.append((f"{VICTIM_KEYS[0]} {VICTIM_KEYS[1]} … {HOST_KEY}", f"Focus one that is measured{again}."))
        for action in known(self.replayed):
            rows.append((" ".join(shown(key) for key in keys(action, self.changed).split(",")), action.what))
        rows.append(("ctrl+p", "The command palette: all of this by name."))
        for names, what in rows:
            text.append(f"  {names:<10}", "bold")
            text.append(f"{what}\n")
        text.append("\n")
        for title, body in _READ:
            section(text, title, body)
        section(
            text, "Settings and other keys", f"{settings.path()} (stallscope settings prints one with all defaults)"
        )
        return text
