"""Causes beside several aggressors: how often `run` and the screen name the right one, by what blame proves.

python tests/benchmarks/bench_causes.py [--seed N] [--processes P] [--mixtures FIRST-LAST] [--lines] [--check]
python tests/benchmarks/bench_causes.py --recorded [--lines] [--check]

On the simulated GPU, all 45 pairs and twelve triples of the quick check's aggressors run beside five victims: switched
on at once, as in `run`; and on the screen one after the other, 3 s apart, in an order drawn by the seed. Each verdict
is compared with what blame finds of the same figure: right if it names a cause, or one of those that only together make
the stall. With --recorded, the figures of the same mixtures on an H200 (tests/gpu/recorded/mixtures-h200.json.gz) are
explained as in `run`.

With --check it exits 1 if a "because of" is wrong, if more than 3 % of the named are a wrong "probably", or if fewer
than 62 % of those with a single culprit are right.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories import aggressor_mixtures
from factories.aggressor_mixtures import MIXTURES, VICTIMS, Score, Scored, figure_of, scored, switched_one_by_one
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.measurement import blame, measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.patterns.naming import parse_probe
from stallprobes.recording.observation import SIM
from stallprobes.verdicts.blame import Blame
from stallprobes.verdicts.verdict import Verdict

WRONG_PROBABLY, RIGHT = 0.03, 0.62
_AT_ONCE, _ONE_BY_ONE, _RECORDED = "run", "screen", "recorded"


def truth(aggressors: Sequence[str], seed: int) -> Blame:
    """What blame finds of the mixture."""
    victims, probes = [list(map(parse_probe, names)) for names in (VICTIMS, aggressors)]
    session = Session([*victims, *probes], backend=SIM, options=Options(seed=seed))
    session.start()
    try:
        session.set_running(list(VICTIMS))
        session.run_for(0.5)
        return blame.measure(session, probes, victims)
    finally:
        session.stop()


def of_run(aggressors: Sequence[str], seed: int) -> tuple[Verdict, ...]:
    """The verdicts of `run` on the mixture."""
    planned = plan(selection((*VICTIMS, *aggressors)), seconds=1.0)
    (variant,) = measure.run(planned, backend=SIM, options=Options(seed=seed)).variants
    return variant.verdicts


def of_screen(aggressors: Sequence[str], seed: int) -> tuple[Verdict, ...]:
    """The verdicts of the screen after the aggressors were switched on one after the other."""
    order = random.Random(seed).sample(aggressors, len(aggressors))
    return switched_one_by_one(order, Options(seed=seed), Session).verdicts


def of_mixture(number: int, seed: int) -> list[tuple[str, Scored]]:
    """The scores of one mixture, each with where the verdict is from."""
    aggressors, mixture_seed = MIXTURES[number], 1000 * seed + number
    found = truth(aggressors, mixture_seed)
    return [
        (where, scored(verdict, figure_of(verdict, found), aggressors))
        for where, verdicts in (
            (_AT_ONCE, of_run(aggressors, mixture_seed)),
            (_ONE_BY_ONE, of_screen(aggressors, mixture_seed)),
        )
        for verdict in verdicts
        if verdict.kind.is_stall and verdict.probe in VICTIMS
    ]


def report(where: str, found: Iterable[Scored], lines: bool) -> bool:
    """Print the counts of ``found``; True if they are as good as promised."""
    every = list(found)
    counts = Counter(one.score for one in every)
    clear = Counter(one.score for one in every if one.clear)
    right = clear[Score.BECAUSE_RIGHT] + clear[Score.PROBABLY_RIGHT]
    named = sum(counts[score] for score in Score) - counts[Score.NOT_KNOWN] - counts[Score.UNDECIDED]
    for one in every:
        if lines or one.score in (Score.BECAUSE_WRONG, Score.PROBABLY_WRONG):
            print(f"    {one.line}")
    print(f"{where}: {len(every)} verdicts: {', '.join(f'{score} {counts[score]}' for score in Score)}")
    share = right / max(clear.total(), 1)
    print(f"{where}: of {clear.total()} with a single culprit: right {right} ({share:.0%}), not known "
          f"{clear[Score.NOT_KNOWN]}, wrong {clear[Score.BECAUSE_WRONG] + clear[Score.PROBABLY_WRONG]}")  # fmt: skip
    few_wrong = counts[Score.PROBABLY_WRONG] <= WRONG_PROBABLY * max(named, 1)
    return not counts[Score.BECAUSE_WRONG] and few_wrong and share >= RIGHT


def main() -> int:
    """Measure and print; 1 where a rate is too bad and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mixtures", default=f"0-{len(MIXTURES) - 1}", metavar="FIRST-LAST")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--lines", action="store_true", help="print every verdict, not only the wrong ones")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.recorded:
        good = report(_RECORDED, aggressor_mixtures.scores_of_recorded(), asked.lines)
        return int(asked.check and not good)
    first, last = map(int, asked.mixtures.split("-"))
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        found = [one for each in pool.map(partial(of_mixture, seed=asked.seed), range(first, last + 1)) for one in each]
    wheres = (_AT_ONCE, _ONE_BY_ONE)
    goods = [report(where, (one for at, one in found if at == where), asked.lines) for where in wheres]
    return int(asked.check and not all(goods))


if __name__ == "__main__":
    raise SystemExit(main())
