"""What is begun before the screen's modules are there."""

from __future__ import annotations

import threading

import pytest

from stallscope import ahead


def test_the_first_answer_was_begun_at_once_and_later_ones_are_asked_for_anew() -> None:
    asked: list[int] = []
    done = threading.Event()

    def question() -> int:
        asked.append(len(asked))
        done.set()
        return len(asked)

    begun = ahead.Begun(question)
    assert done.wait(5)
    assert [begun(), begun(), begun()] == [1, 2, 3]


def test_what_went_wrong_ahead_is_raised_where_it_is_asked_for() -> None:
    def question() -> int:
        raise ValueError("no")

    begun = ahead.Begun(question)
    with pytest.raises(ValueError, match="no"):
        begun()


@pytest.mark.parametrize(
    ("simulated", "signs", "backend"), [(True, ("/",), "sim"), (False, ("/",), "cuda"), (False, (), "sim")]
)
def test_the_engine_is_of_the_kind_that_will_be_wanted(
    monkeypatch: pytest.MonkeyPatch, simulated: bool, signs: tuple[str, ...], backend: str
) -> None:
    monkeypatch.setattr(ahead, "_SIGNS", signs)
    spare = ahead.engine(simulated)
    assert spare is not None
    assert spare.backend == backend
    spare.close()
