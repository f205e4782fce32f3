"""Blame by experiment: how often the cause of a stall is named, and how often an innocent aggressor is.

python tests/benchmarks/bench_blame.py [--seeds N | --seeds FIRST-LAST] [--seconds S] [--processes P] [--check]
python tests/benchmarks/bench_blame.py --chosen [--backend cuda]

Without --chosen each seed draws one victim and two to four aggressors of the catalogue on the simulated GPU. The truth
comes from separate runs of ``--seconds`` in each state, of more where the victim makes few calls. Aggressors whose true
effect is near the limit that decides are counted apart. With --check it exits 1 if fewer than 97 % of the causes that
the experiment decides on are named as what they are, if it leaves more than 5 % of the causes undecided, or if it names
more than 1 % of the innocent.

With --chosen the six mixtures below are measured, and the expected and the found conclusions are printed unfiltered.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.blame_mixtures import AggressorScore, Mixture, blamed, runs_of, scores, truths
from stallprobes.errors import Unsupported
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.units import duration_ns
from stallprobes.verdicts.blame import Conclusion, FigureBlame
from stallscope.report.blame_table import share_texts

RIGHT, UNDECIDED, INNOCENT_NAMED = 0.97, 0.05, 0.01

# Chosen before any was measured: victim, phase at p50, each aggressor with the conclusion that measurements of single
# aggressors on an H200 let expect.
CHOSEN: tuple[tuple[str, Phase, dict[str, Conclusion]], ...] = (
    # A warm pageable copy on the NULL stream holds the context's lock for 14 ms; the spin delays no launch.
    ("launch", Phase.CALL, {"d2h-pageable-warm/null": Conclusion.CAUSE, "spin": Conclusion.INNOCENT}),
    # Time-slices delay the secondary context; creating streams in the primary context locks only that.
    ("d2d@secondary", Phase.WAIT, {"spin": Conclusion.CAUSE, "stream-churn": Conclusion.INNOCENT}),
    # One time-slice for each other busy context: each spin alone already stalls the third context.
    ("d2d@third", Phase.WAIT, {"spin": Conclusion.SUFFICIENT, "spin@secondary": Conclusion.SUFFICIENT}),
    # Both hold the context's lock for milliseconds.
    ("launch", Phase.CALL, {"host-alloc-free": Conclusion.SUFFICIENT, "host-register": Conclusion.SUFFICIENT}),
    # cuMemFree waits for the running kernel and holds up launches meanwhile; alone it takes 54 µs.
    ("launch", Phase.CALL, {"alloc-free": Conclusion.NECESSARY, "spin": Conclusion.NECESSARY}),
    # One copy engine per direction, in order; the other two stall nothing.
    (
        "d2h-pinned",
        Phase.WAIT,
        {
            "d2h-pinned-large": Conclusion.CAUSE,
            "nvml-poll": Conclusion.INNOCENT,
            "alloc-async": Conclusion.INNOCENT,
        },
    ),
)


@dataclass(frozen=True)
class SeedResult:
    """The scores of one seed, and a line about them; none for a mixture that cannot run."""

    scores: tuple[AggressorScore, ...]
    line: str


def one_mixture(seed: int, seconds: float) -> SeedResult:
    """The mixture of ``seed``: its truth and what the experiment finds, in engines of their own."""
    began = time.perf_counter()
    mixture = Mixture.drawn(seed)
    try:
        session = mixture.session(seed + 1_000_000)
    except Unsupported as error:
        return SeedResult((), f"{seed:5} {mixture.victim.name} beside {', '.join(mixture.names)}: {error}")
    try:
        runs = runs_of(mixture, session, seconds)
    finally:
        session.stop()
    result = blamed(mixture, seed)
    each = scores(mixture, truths(mixture, runs), result)
    words = "; ".join(
        f"{one.aggressor} {one.truth}"
        + (f"→{one.found or 'no figure'}" if one.truth.named and not one.right else "")
        + (" NAMED" if not one.truth.named and one.named else "")
        + (" (borderline)" if one.borderline else "")
        for one in each
    )
    wrong = "  WRONG" if any(not one.right and not one.borderline for one in each) else ""
    spent = f"[{result.seconds:.1f} s, {time.perf_counter() - began:.1f} s]"
    return SeedResult(tuple(each), f"{seed:5} {mixture.victim.name}: {words}  {spent}{wrong}")


def random_mixtures(first: int, last: int, seconds: float, processes: int) -> list[AggressorScore]:
    """The scores of the seeds ``first`` to ``last``, each printed."""
    found: list[AggressorScore] = []
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for result in pool.map(partial(one_mixture, seconds=seconds), range(first, last + 1)):
            print(result.line, flush=True)
            found += result.scores
    return found


def report(found: list[AggressorScore]) -> bool:
    """Print the rates; True if they are as good as promised."""
    clear = [one for one in found if not one.borderline]
    causes = [one for one in clear if one.truth.named]
    innocent = [one for one in clear if one.truth is Conclusion.INNOCENT]
    border = [one for one in found if one.borderline]
    decided = [one for one in causes if one.decided]
    right, wrong = sum(one.right for one in causes), sum(one.named for one in innocent)
    undecided = len(causes) - len(decided)
    print(f"causes decided on as what they are: {right} of {len(decided)} ({right / max(len(decided), 1):.1%})")
    print(f"causes left undecided: {undecided} of {len(causes)} ({undecided / max(len(causes), 1):.1%})")
    print(f"causes named as what they are: {right} of {len(causes)} ({right / max(len(causes), 1):.1%})")
    for kind, count in Counter(one.truth for one in causes).items():
        print(f"    {kind}: {sum(one.right for one in causes if one.truth is kind)} of {count}")
    some = sum(one.named for one in causes)
    print(f"causes named as some cause: {some} of {len(causes)} ({some / max(len(causes), 1):.1%})")
    print(f"innocent ones named: {wrong} of {len(innocent)} ({wrong / max(len(innocent), 1):.1%})")
    named = [one for one in found if one.truth.named]
    others = [one for one in found if one.truth is Conclusion.INNOCENT]
    share = len(border) / max(len(found), 1)
    print(
        f"near a limit, not counted above: {len(border)} of {len(found)} ({share:.1%}), "
        f"of which {sum(one.right for one in border)} right"
    )
    print(
        f"with these: causes {sum(one.right for one in named)} of {len(named)}, "
        f"innocent ones named {sum(one.named for one in others)} of {len(others)}"
    )
    enough = right >= RIGHT * len(decided) and undecided <= UNDECIDED * len(causes)
    return enough and wrong <= INNOCENT_NAMED * len(innocent)


def chosen(backend: str) -> bool:
    """Measure the chosen mixtures; True if all conclusions are as expected."""
    whole = right = 0
    for victim, phase, expected in CHOSEN:
        mixture = Mixture.of(victim, *expected)
        result = blamed(mixture, 1, backend)
        figure = result.find(mixture.victim.name, phase, Quantile.P50)
        print(f"{victim} beside {', '.join(expected)}: {result.rounds} rounds in {result.seconds:.1f} s", flush=True)
        for name, conclusion in expected.items():
            got = None if figure is None else next(one for one in figure.aggressors if one.aggressor == name).conclusion
            whole, right = whole + 1, right + (got is conclusion)
            mark = "" if got is conclusion else "  DIFFERS"
            print(f"    {phase} p50, {name}: expected {conclusion}, found {got or 'no figure'}{mark}")
        for one in result.figures:
            print(f"      {figure_text(one)}")
        if result.idle:
            print(f"      did not run in some windows: {', '.join(result.idle)}")
    print(f"as expected: {right} of {whole}")
    return right == whole


def figure_text(one: FigureBlame) -> str:
    """One figure with every aggressor's part."""
    where = f"{one.channel.phase} {one.channel.label}".rstrip()
    parts = ", ".join(
        f"{part.aggressor} {part.conclusion} (alone {duration_ns(part.alone_ns)}, "
        f"without {duration_ns(part.without_ns)}, share {' '.join(share_texts(part.share))})"
        for part in one.aggressors
    )
    return f"{where} {one.quantile} {duration_ns(one.off_ns)} → {duration_ns(one.on_ns)}, {one.outcome}: {parts}"


def seed_range(text: str) -> tuple[int, int]:
    """``N`` as 0 to N-1, ``FIRST-LAST`` as it is."""
    first, _, last = text.partition("-")
    return (int(first), int(last)) if last else (0, int(first) - 1)


def main() -> int:
    """Measure and print; 1 where a rate is too low and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seed_range, default=(0, 199), metavar="N")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a run of the truth")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="seeds measured at once")
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--backend", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    first, last = asked.seeds
    good = (
        chosen(asked.backend) if asked.chosen else report(random_mixtures(first, last, asked.seconds, asked.processes))
    )
    return int(asked.check and not good)


if __name__ == "__main__":
    raise SystemExit(main())
