"""Candidates for the cause of a stall beside several aggressors: all that recorded checks do not rule out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from stallprobes.model import Phase, Probe


class Effect(Enum):
    """Effect of a single aggressor on one phase of a victim, by recorded checks.

    A stall counts if the stall explains the asked ratio. ``STALLS``: all checks show a stall. ``MAY_STALL``: only some
    checks show a stall, or the checks had larger copies. ``NONE``: no check shows a stall.
    """

    STALLS = auto()
    MAY_STALL = auto()
    NONE = auto()


@dataclass(frozen=True)
class AggressorGroup:
    """Threads of one aggressor, with the name under which they are selected."""

    name: str
    probes: tuple[Probe, ...]


class KnownEffects(Protocol):
    """Effects of single aggressors in recorded checks; ``source`` names the checks for a reader."""

    @property
    def source(self) -> str:
        """The checks, as a sentence names them."""

    def effect(self, victim: Probe, aggressor: AggressorGroup, phase: Phase, ratio: float | None) -> Effect | None:
        """The effect of ``aggressor`` by itself on ``phase`` of ``victim``, as far as it explains a ``ratio``.

        ``ratio`` is now over baseline, None if unknown. None where no check has measured the two.
        """


# Reader of the checks: reading takes time, and few verdicts need them.
EffectsSource = Callable[[], KnownEffects | None]


def no_effects() -> None:
    """Known effects where no check is known."""


def aggressor_groups(aggressors: Iterable[Probe]) -> tuple[AggressorGroup, ...]:
    """``aggressors`` in their order by the name that selects them; threads share the name before their numbers."""
    groups: dict[str, list[Probe]] = {}
    for probe in aggressors:
        name, _, number = probe.name.rpartition(" ")
        groups.setdefault(name if name and number.isdecimal() else probe.name, []).append(probe)
    return tuple(AggressorGroup(name, tuple(probes)) for name, probes in groups.items())
