"""The victim that the panels show while the user has selected none: the one that stalls, chosen without flicker.

A stall is a verdict that is in the log as current; noise of the host is none. The rule, at each judgement:

1. While no victim stalls, the choice stays: the victim that stalled last, at first the first victim.
2. If the chosen victim has not stalled for ``QUIET_S``, the worst of the others that stall is chosen at once.
3. If the chosen victim stalls too, another one is chosen only where it has been clearly worse for ``WORSE_S``: its
   verdict is of a more severe kind, or of the same kind with ``WORSE`` times the ratio to its own baseline.

So a choice changes at most once per ``WORSE_S`` while both stall, and two victims of about the same ratio never
alternate: for the way back the other one would have to be ``WORSE`` times as bad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Time (s) without a stall of the shown victim after which the monitor shows another victim that stalls.
QUIET_S = 3.0
# Smallest factor between two victims' ratios to the baseline at which the victim with the larger ratio is clearly
# worse. The factor applies to verdicts of the same kind. A victim with a verdict of a more severe kind is always
# clearly worse.
WORSE = 3.0
# Shortest time (s) for which another victim must be clearly worse before the monitor shows the other victim. The rule
# applies while the shown victim stalls. Reason: the monitor must not alternate between victims.
WORSE_S = 1.0

# Severity of a verdict's kind, and the ratio to the victim's baseline.
Weight = tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class Following:
    """The choice, ``name``, None before the first stall, and what it rests on.

    ``stalled_s`` is when the chosen victim stalled last, ``rival`` a victim that has been clearly worse since
    ``rival_s`` (s, of one clock).
    """

    name: str | None = None
    stalled_s: float = -math.inf
    rival: str | None = None
    rival_s: float = 0.0

    def after(self, stalls: Mapping[str, Weight], now_s: float) -> Following:
        """The choice after a judgement at ``now_s``; ``stalls`` has the weight of each victim that stalls."""
        worst = max(stalls, key=lambda name: stalls[name], default=None)
        chosen = None if self.name is None else stalls.get(self.name)
        if worst is None:
            return self if self.rival is None else replace(self, rival=None)
        if chosen is None:
            # A clock that was set back ends the wait: the time since the last stall is not known.
            if 0 <= now_s - self.stalled_s < QUIET_S:
                return self if self.rival is None else replace(self, rival=None)
            return Following(name=worst, stalled_s=now_s)
        if not _clearly_worse(stalls[worst], chosen):
            return Following(name=self.name, stalled_s=now_s)
        if self.rival != worst:
            return Following(name=self.name, stalled_s=now_s, rival=worst, rival_s=now_s)
        if now_s - self.rival_s >= WORSE_S:
            return Following(name=worst, stalled_s=now_s)
        return replace(self, stalled_s=now_s)

    def within(self, names: tuple[str, ...]) -> Following:
        """The choice among other victims, ``names``: the same victim if it is among them, else none."""
        return self if self.name in names else Following()


def _clearly_worse(first: Weight, second: Weight) -> bool:
    return first[0] > second[0] or (first[0] == second[0] and first[1] >= WORSE * second[1])
