"""Causes beside several aggressors against blame on an H200: 45 pairs and 12 triples, recorded once."""

from __future__ import annotations

from collections import Counter
from functools import cache

from factories.aggressor_mixtures import MIXTURES, Score, Scored, recorded, scores_of_recorded


@cache
def scores() -> tuple[Scored, ...]:
    return tuple(scores_of_recorded())


def count(clear: bool = False) -> Counter[Score]:
    return Counter(one.score for one in scores() if one.clear or not clear)


def test_every_mixture_is_recorded() -> None:
    assert {aggressors for aggressors, _ in recorded()} <= set(MIXTURES)
    assert len({aggressors for aggressors, _ in recorded()}) >= len(MIXTURES) - 1


def test_no_aggressor_is_named_for_sure_that_is_not_the_cause() -> None:
    assert [one.line for one in scores() if one.score is Score.BECAUSE_WRONG] == []


def test_few_are_named_as_probable_that_are_not_the_cause() -> None:
    wrong = count()[Score.PROBABLY_WRONG]
    assert wrong <= 0.03 * (wrong + count()[Score.PROBABLY_RIGHT] + count()[Score.BECAUSE_RIGHT])


def test_most_single_culprits_are_named() -> None:
    clear = count(clear=True)
    assert clear[Score.BECAUSE_RIGHT] + clear[Score.PROBABLY_RIGHT] >= 0.62 * clear.total()
