"""Comparability of two checks: why they cannot be compared, as a sentence."""

from __future__ import annotations

import math

from stallprobes.matrix.matrix import Matrix
from stallprobes.units import duration


def timeline_mismatch(old: bool, new: bool) -> str | None:
    """Why checks cannot be compared of which only one was made with the timeline, as a sentence; None if they can."""
    if old == new:
        return None
    kinds = ["with" if timeline else "without" for timeline in (old, new)]
    return (
        f"The old check was made {kinds[0]} the timeline, the new one {kinds[1]} it, and it adds to each call: make "
        "both with --timeline, or both without."
    )


def mismatch(old: Matrix, new: Matrix) -> str | None:
    """Why two checks are not alike: GPU, profile, number of machines or pace; None if they are."""
    gpus = [matrix.fingerprint.get("gpu") for matrix in (old, new)]
    if old.simulated != new.simulated:
        kinds = ["on the simulated GPU" if matrix.simulated else "on a real GPU" for matrix in (old, new)]
        return f"The old check was made {kinds[0]}, the new one {kinds[1]}."
    if old.profile != new.profile:
        return f"The old check simulates the profile {old.profile}, the new one {new.profile}."
    if None not in gpus and gpus[0] != gpus[1]:
        return f"The old check was made on {gpus[0]}, the new one on {gpus[1]}."
    if bool(old.hosts) != bool(new.hosts):
        sizes = ["several machines" if matrix.hosts else "one machine" for matrix in (old, new)]
        return f"The old check is of {sizes[0]}, the new one of {sizes[1]}."
    if not math.isclose(old.pace_us, new.pace_us, rel_tol=1e-6):
        return f"The old check calls every {duration(old.pace_us)}, the new one every {duration(new.pace_us)}."
    return None
