"""Watching a process that runs already: attaching, what is read meanwhile, and the report after detaching."""

from __future__ import annotations

from stallprobes.errors import WatchError
from stallprobes.watch.attaching import refusal
from stallprobes.watch.environment import WatchOptions
from stallscope.cli.watching.files import WatchFiles
from stallscope.tui.settings import Settings


def run_attached(
    pid: int,
    options: WatchOptions,
    files: WatchFiles,
    seconds: float | None,
    known: Settings | None = None,
    *,
    children: bool = False,
    no_screen: str = "",
) -> int:
    """Attach to the process ``pid``, show what it does, detach, report, and return the exit code (0 or 125).

    ``seconds``: detach after so long, None: at the user's wish. ``known`` are the screen's settings, None for no screen,
    for the reason ``no_screen``, "" where none was asked for. ``children``: also its descendants. Raises WatchError
    where it cannot be attached.
    """
    raise WatchError(refusal(pid) or f"process {pid} cannot be attached: this version has no attacher.")
