"""What a report says of a program against its truth, and tables of many of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from truth.reading import Figure, Report
from truth.truth import SIDES, SPECIFIC, Truth

# Broader cause of each specific cause. A verdict with only the broader cause has the outcome "side".
_SIDE_OF = {
    "own sleep": "host", "input": "host", "CPUs": "host", "compiling": "host", "locks": "host", "idle": "host",
    "allocation": "host", "loading": "host", "turns": "waits", "gaps": "kernels", "queued": "kernels",
    "copies": "kernels",
}  # fmt: skip
# Results of a report against the truth. right, second: the first or the second verdict is a true cause; right too: no
# verdict on a program that cannot be judged from outside. side: the first verdict is the broader cause of a true one.
# not known: no verdict. no truth: the truth is not known.
OUTCOMES = ("right", "second", "side", "wrong", "not known", "no truth")
# Largest error of a share (0 to 1) in a report that the tables count as small.
MAX_SHARE_ERROR = 0.05
# Difference (0 to 1) between the largest gain and the verdict's gain above which the truth excludes the verdict. A gain
# is the share of the time that the removal of a cause saves.
EXCLUDED = 0.15
# Error (0 to 1) of a share through the clocks: smallest half width of an interval; smaller idle shares count as 0.
CLOCKS = 0.01
# Figures of the report that are compared with the truth: two shares, and the gain of removing the waits (price).
_FIGURES = ("host", "gpu", "price")


@dataclass(frozen=True)
class Result:
    """One program that was watched. ``failure`` is what went wrong with it, else empty. ``of_phase``: the truth of the
    phase that the verdict is of, None without phases."""

    seed: int
    shape: str
    attached: bool
    knowable: bool
    truth: Truth | None
    report: Report | None
    failure: str = ""
    plain_step_ns: float = 0.0
    of_phase: Truth | None = None

    @property
    def judged(self) -> Truth | None:
        """The truth that the verdict is held against."""
        return self.of_phase or self.truth

    @property
    def outcome(self) -> str:
        """One of ``OUTCOMES``, or "failed"."""
        if self.judged is None or self.report is None:
            return "failed"
        if not self.judged.known:
            return "no truth"
        right = self.judged.bounds
        if not self.report.verdict:
            return "right" if not self.knowable else "not known"
        for said, outcome in ((self.report.verdict, "right"), (self.report.second, "second")):
            if set(said.split(" or ")) & set(right):
                return outcome
        return "side" if any(_SIDE_OF.get(cause) == self.report.verdict for cause in right) else "wrong"

    @property
    def excluded(self) -> bool:
        """Whether the truth excludes the gain of the verdict by more than ``EXCLUDED``."""
        if self.judged is None or self.report is None or not self.judged.known or not self.report.verdict:
            return False
        gains, said = self.judged.gains, self.report.verdict
        if said == "idle":
            return self.judged.idle < 0.5 - EXCLUDED
        group = SIDES if said in SIDES else SPECIFIC
        best = max(gains.get(cause, 0.0) for cause in (*group, *SPECIFIC))
        gain = max(gains.get(cause, 0.0) for cause in said.split(" or "))
        return self.outcome in ("wrong", "side") and gain < best - EXCLUDED

    def truths(self) -> Iterator[tuple[str, float, Figure]]:
        """Each figure of the report whose truth is known, with that."""
        if self.judged is None or self.report is None:
            return
        price = self.judged.gains.get("waits") if self.judged.known and self.judged.idle < CLOCKS else None
        real: Mapping[str, float | None] = {**self.judged.shares, "price": price}
        for name in _FIGURES:
            value, figure = real.get(name), self.report.figures.get(name)
            kernels, said = real.get("kernels"), self.report.parts.get("kernels", 0.0)
            if name == "gpu" and value is None and kernels is not None and figure is not None:
                # Without copies, of which the truth knows less.
                value, copies = kernels, figure.share - said
                figure = Figure(said, figure.low - copies, figure.high - copies)
            if value is not None and figure is not None:
                yield name, value, figure


def is_covered(value: float, figure: Figure) -> bool:
    """Whether an interval, which is never of zero width, holds the truth."""
    low, high = min(figure.low, figure.share - CLOCKS), max(figure.high, figure.share + CLOCKS)
    return low <= value <= high


@dataclass
class _Sums:
    outcomes: dict[str, int] = field(default_factory=dict)
    excluded: int = 0
    errors: dict[str, list[float]] = field(default_factory=dict)
    covered: list[bool] = field(default_factory=list)
    slower: list[float] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Count a program."""
        self.outcomes[result.outcome] = self.outcomes.get(result.outcome, 0) + 1
        self.excluded += result.excluded
        for name, value, figure in result.truths():
            self.errors.setdefault(name, []).append(figure.share - value)
            self.covered.append(is_covered(value, figure))
        if result.plain_step_ns and result.truth and result.truth.step_ns:
            self.slower.append(result.truth.step_ns / result.plain_step_ns - 1)

    def line(self, name: str) -> str:
        """A row of a table."""
        counts = " ".join(f"{self.outcomes.get(outcome, 0) or '·':>5}" for outcome in (*OUTCOMES, "failed"))
        errors = " ".join(_errors(self.errors.get(figure, [])) for figure in ("host", "gpu", "price"))
        covered = f"{sum(self.covered)}/{len(self.covered)}" if self.covered else "–"
        slower = f"{statistics.median(self.slower):+.1%}" if self.slower else "–"
        figures = f"{self.excluded or '·':>8} {errors} {covered:>7} {slower:>7}"
        return f"{name[:22]:22} {sum(self.outcomes.values()):4} {counts} {figures}"


def _errors(values: Sequence[float]) -> str:
    """Median and largest error in points, and in how many it is small."""
    if not values:
        return f"{'–':>15}"
    sizes = [abs(value) for value in values]
    within = sum(size <= MAX_SHARE_ERROR for size in sizes)
    return f"{statistics.median(sizes) * 100:4.0f} {max(sizes) * 100:3.0f} {within:3}/{len(sizes):<2}"


def limit_low(count: int, of: int) -> float:
    """Lower 95 % limit of a share, by Wilson."""
    if not of:
        return 0.0
    z, share = 1.96, count / of
    middle = share + z * z / (2 * of)
    return (middle - z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))) / (1 + z * z / of)


# Limits (ms) between the classes of step lengths in the tables.
_STEPS_MS = (1, 10, 100, 1000)


def _step_length(result: Result) -> str:
    if result.truth is None or not result.truth.step_ns:
        return "step: not known"
    ms = result.truth.step_ns / 1e6
    return next((f"step < {limit:4} ms" for limit in _STEPS_MS if ms < limit), f"step ≥ {_STEPS_MS[-1]} ms")


# Tables by title, each with the function that returns a result's row.
DIMENSIONS: dict[str, Callable[[Result], str]] = {
    "shape": lambda result: result.shape,
    "length of a step": _step_length,
    "attached": lambda result: "attached" if result.attached else "from the start",
    "truth": lambda result: ", ".join(result.judged.bounds) if result.judged and result.judged.known else "not known",
}


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Lines of tables by dimension, of the programs that were not right, and of the sums."""
    heads = " ".join(f"{head:>5}" for head in ("right", "2nd", "side", "wrong", "n.k.", "?", "fail"))
    errors = " ".join(f"{figure + ' error':>15}" for figure in ("host", "gpu", "price"))
    for dimension, key in DIMENSIONS.items():
        yield f"{'by ' + dimension:22} {'n':>4} {heads} {'excluded':>8} {errors} {'held':>7} {'slower':>7}"
        sums: dict[str, _Sums] = {}
        for result in results:
            sums.setdefault(key(result), _Sums()).add(result)
        yield from (sums[name].line(name) for name in sorted(sums))
        yield ""
    everything = _Sums()
    for result in results:
        everything.add(result)
    yield everything.line("all")
    yield "side: the side on which the specific cause lies. n.k.: not known. ?: the truth is not known."
    yield "excluded: the gain of the verdict, by more than 15 points."
    yield "Errors: median and largest in points, and in how many of the programs it is at most 5."
    yield from _pooled(everything)
    yield ""
    yield from (_wrong(result) for result in results if result.outcome not in ("right", "second"))


def _pooled(sums: _Sums) -> Iterator[str]:
    judged = sum(sums.outcomes.get(outcome, 0) for outcome in OUTCOMES[:5])
    right = sums.outcomes.get("right", 0) + sums.outcomes.get("second", 0)
    shares = [abs(error) <= MAX_SHARE_ERROR for name in ("host", "gpu") for error in sums.errors.get(name, [])]
    for what, count, of in (
        ("shares within 5 points", sum(shares), len(shares)),
        ("verdict right, or second", right, judged),
        ("intervals that hold the truth", sum(sums.covered), len(sums.covered)),
    ):
        yield f"{what}: {count} of {of} ({count / max(of, 1):.0%}, at least {limit_low(count, of):.0%})"
    for what, count in (
        ("not known", sums.outcomes.get("not known", 0)),
        ("gain of the verdict excluded by more than 15 points", sums.excluded),
    ):
        high = 1 - limit_low(judged - count, judged)
        yield f"{what}: {count} of {judged} ({count / max(judged, 1):.0%}, at most {high:.0%})"


def _wrong(result: Result) -> str:
    name = f"{result.seed:5} {result.shape:20} {result.outcome:9}"
    if result.truth is None or result.report is None:
        return f"{name} {' '.join(result.failure.split())[-160:]}"
    gains = sorted(result.truth.gains.items(), key=lambda item: -item[1])[:4]
    said = f"said {result.report.verdict or 'not known'} ({result.report.second or '–'})"
    told = " ".join(f"{cause} {gain:.0%}" for cause, gain in gains)
    figures = " ".join(f"{name} {figure.share:.0%}/{value:.0%}" for name, value, figure in result.truths())
    error = "?" if result.truth.error is None else f"{result.truth.error:+.0%}"
    idle = f" idle {result.truth.idle:.0%}" if result.truth.idle > CLOCKS else ""
    bounds = ", ".join(result.truth.bounds) or "?"
    return f"{name} {said}; truth {bounds}:{idle} {told} (replay {error}); {figures} {result.report.problem}"
