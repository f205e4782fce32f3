"""Why a process cannot be attached: a check from outside that touches nothing."""

from __future__ import annotations

from pathlib import Path


def refusal(pid: int) -> str | None:
    """Why the process ``pid`` cannot be attached and what to do about it, one sentence; None if it can be."""
    return None if Path(f"/proc/{pid}").is_dir() else f"there is no process {pid}: check the number."
