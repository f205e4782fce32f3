"""Differences between the machines and settings of two checks, by their fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallprobes.matrix.matrix import Matrix

_FIRST = (
    "gpu", "driver", "cuda", "mig", "mps", "module_loading", "compute_mode", "memory_bytes",
    "cpu", "cpus", "governor", "environment",
)  # fmt: skip
_LAST = ("kernel", "quick", "program", "hostname", "pci", "uuid", "python", "packages")
_NEVER = frozenset({"date", "pid", "unknown"})


@dataclass(frozen=True)
class Difference:
    """A value that differs between the fingerprints; the key of a nested one is ``environment.CUDA_…``."""

    key: str
    old: object
    new: object


def differences(old: Matrix, new: Matrix) -> tuple[Difference, ...]:
    """Differences of the fingerprints except dates, those that affect latencies most first."""
    before, now = (_flat({**m.fingerprint, "program": m.program or None, "quick": m.quick}) for m in (old, new))
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return tuple(Difference(key, before.get(key), now.get(key)) for key in sorted(keys, key=_place))


def _flat(fingerprint: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in fingerprint.items():
        if key in _NEVER:
            continue
        if isinstance(value, Mapping):
            found.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            found[key] = value
    return found


def _place(key: str) -> tuple[int, str]:
    head = key.partition(".")[0]
    if head in _FIRST:
        return _FIRST.index(head), key
    return len(_FIRST) + (1 + _LAST.index(head) if head in _LAST else 0), key
