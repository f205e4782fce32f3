"""Comparability of two checks: why they cannot be compared, and how their machines and settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stallprobes.files.codec import Document, Text
from stallprobes.matrix.matrix import Matrix
from stallprobes.units import duration_ns

# Keys of the machine's fingerprint whose differences between two checks are named first, in this order.
_FIRST = (
    "gpu", "driver", "cuda", "mig", "mps", "module_loading", "compute_mode", "memory_bytes",
    "cpu", "cpus", "governor", "environment",
)  # fmt: skip
# Keys of the machine's fingerprint whose differences between two checks are named last, in this order.
_LAST = ("kernel", "quick", "program", "hostname", "pci", "uuid", "python", "packages")
# Keys of the machine's fingerprint whose differences between two checks are not named.
_NEVER = frozenset({"date", "pid", "unknown"})


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
    if old.pace_ns != new.pace_ns:
        return f"The old check calls every {duration_ns(old.pace_ns)}, the new one every {duration_ns(new.pace_ns)}."
    return None


class Difference(Document):
    """A value that differs between the fingerprints."""

    key: Text
    """That of a nested value is environment.CUDA_…"""
    old: Any
    """Value in the old check, or in the reference."""
    new: Any
    """Value in the new check."""


def differences(old: Matrix, new: Matrix) -> tuple[Difference, ...]:
    """Differences of the fingerprints except dates, the largest effect on latencies first."""
    before, now = (_flat({**m.fingerprint, "program": m.program or None, "quick": m.quick}) for m in (old, new))
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return tuple(Difference(key, before.get(key), now.get(key)) for key in sorted(keys, key=_place))


def _flat(fingerprint: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in fingerprint.items():
        if key in _NEVER:
            continue
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": item for name, item in value.items()})
        else:
            flat[key] = value
    return flat


def _place(key: str) -> tuple[int, str]:
    head = key.partition(".")[0]
    if head in _FIRST:
        return _FIRST.index(head), key
    return len(_FIRST) + (1 + _LAST.index(head) if head in _LAST else 0), key
