"""Counts of consecutive times, of which a run of any length has a limited number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

# Largest number of times that are kept. With more, each pair of neighbouring ones is merged. Those of a second cover
# more than an hour.
_MOST = 4096


class TimedCounts:
    """Counts by name in times, one behind the other."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, Counter[str]]] = []

    def add(self, begin_ns: int, end_ns: int, counts: Mapping[str, int]) -> None:
        """Add the counts of a time (ns), which begins where the last one ended or later."""
        self._kept.append((begin_ns, end_ns, Counter(counts)))
        if len(self._kept) > _MOST:
            pairs = zip(self._kept[::2], self._kept[1::2], strict=False)
            merged = [(first[0], second[1], first[2] + second[2]) for first, second in pairs]
            self._kept = merged + self._kept[2 * len(merged) :]

    def between(self, begin_ns: int, end_ns: int) -> tuple[int, Counter[str]]:
        """How long (ns) the times between two times are in all, and their counts.

        Where none lies between them as a whole, those of the last one; 0 without any.
        """
        chosen = [each for each in self._kept if begin_ns <= each[0] and each[1] <= end_ns] or self._kept[-1:]
        sums: Counter[str] = Counter()
        for _, _, counts in chosen:
            sums.update(counts)
        return sum(end - begin for begin, end, _ in chosen), sums
