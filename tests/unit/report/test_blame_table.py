"""The table of a blame experiment: its order and words, and what narrow terminals leave out of it."""

from __future__ import annotations

import pytest

from factories.blame_results import CALL, COPY, PINNED, SECONDARY, SEVERAL, SPIN, WAIT, figure, part, result
from stallprobes.verdicts.blame import Blame, BlameOutcome, Conclusion, Interval
from stallscope.report.blame_table import because_of, blame_lines, share_texts
from stallscope.report.columns import display_width


def drawn(blame: Blame, width: int) -> list[str]:
    """The lines as text."""
    lines = ["".join(text for text, _ in line).rstrip() for line in blame_lines(blame, width)]
    assert all(display_width(line) <= width for line in lines)
    return lines


def test_what_stalls_worst_is_first_then_what_is_undecided_and_the_quiet_in_one_line() -> None:
    lines = drawn(SEVERAL, 100)
    heads = [line for line in lines if " p50 " in line or " p99 " in line]
    assert [line.partition(":")[0] for line in heads] == ["d2h-pinned", "d2d@secondary", "launch"]
    assert ["because of" in line for line in heads] == [True, True, False]
    assert heads[2].endswith("undecided")
    assert lines[-1] == "event-record, d2d: none of them"
    assert sum(line.strip().startswith("alone") for line in lines) == 1


@pytest.mark.parametrize("width", [75, 76, 100])
def test_at_80_columns_no_line_is_folded(width: int) -> None:
    assert drawn(result(SECONDARY, PINNED), width) == [
        "                       alone  without  share  95 %",
        "d2h-pinned: call p50 1.52 µs → 4.75 ms, ×3125, because of host-alloc-free",
        " spin                1.52 µs  4.88 ms    0 %  0–10    not involved",
        " d2h-pageable-fresh  2.01 µs  4.69 ms    1 %  0–16    not involved",
        " host-alloc-free     4.11 ms  2.02 µs   99 %  77–100  necessary, sufficient",
        "d2d@secondary: wait p50 5.60 µs → 1.92 ms, ×343, because of spin",
        " spin                1.91 ms  5.62 µs  100 %  99–100  necessary, sufficient",
        " d2h-pageable-fresh  5.61 µs  1.92 ms    0 %  0–1     not involved",
        " host-alloc-free     5.60 µs  1.92 ms    0 %  0–1     not involved",
    ]


@pytest.mark.parametrize("width", [*range(40, 130), 200])
def test_every_figure_and_conclusion_stays_at_every_width(width: int) -> None:
    text = " ".join(" ".join(drawn(SEVERAL, width)).split())
    for figures in ("1.52 µs → 4.75 ms", "×3125", "4.11 ms", "77–100", "not involved", "undecided", "none of them"):
        assert figures in text
    assert "necessary," in text


def test_where_names_have_no_room_each_row_is_a_sentence() -> None:
    long, other = f"{COPY}@secondary", f"{COPY}@tertiary"
    parts = [part(name, Conclusion.CAUSE, 4e6, 2e3, (0.5, 0.4, 0.6)) for name in (long, other)]
    blame = result(PINNED.changed(aggressors=tuple(parts)))
    assert [line.split()[0] for line in drawn(blame, 90)[-2:]] == [long, other]
    text = " ".join(" ".join(drawn(blame, 55)).split())
    assert f"{long}: alone 4.00 ms, without 2.00 µs, share 50 %, 40–60, necessary, sufficient" in text


def test_a_masked_stall_is_said() -> None:
    parts = (part(SPIN, Conclusion.SUFFICIENT, 9_000.0, 1_000.0), part(COPY, Conclusion.INNOCENT, 1_000.0, 9_000.0))
    masked = figure("launch", CALL, 1_000.0, 1_000.0, *parts, outcome=BlameOutcome.MASKED)
    assert because_of(masked) == "not with all on, but with spin alone"


def test_a_share_has_its_interval() -> None:
    assert share_texts(None) == ("–", "")
    assert share_texts(Interval(0.99, 0.77, 1.0)) == ("99 %", "77–100")


@pytest.mark.parametrize(
    ("conclusions", "words"),
    [
        ((Conclusion.CAUSE, Conclusion.INNOCENT), "because of spin"),
        ((Conclusion.SUFFICIENT, Conclusion.SUFFICIENT), f"because of spin, {COPY}"),
        ((Conclusion.NECESSARY, Conclusion.NECESSARY), f"only together: spin, {COPY}"),
        ((Conclusion.NECESSARY, Conclusion.UNDECIDED), "because of spin"),
        ((Conclusion.TOGETHER, Conclusion.TOGETHER), f"only together: spin, {COPY}"),
        ((Conclusion.CONTRIBUTING, Conclusion.UNDECIDED), "undecided"),
        ((Conclusion.CONTRIBUTING, Conclusion.INNOCENT), "longer with spin"),
        ((Conclusion.INNOCENT, Conclusion.INNOCENT), "none of them"),
    ],
)
def test_the_heading_says_because_of_what(conclusions: tuple[Conclusion, Conclusion], words: str) -> None:
    parts = (part(name, one) for name, one in zip((SPIN, COPY), conclusions, strict=True))
    assert because_of(figure("launch", WAIT, 1.0, 2.0, *parts)) == words


def test_what_did_not_run_and_too_few_calls_are_said() -> None:
    assert drawn(result(SECONDARY, idle=(SPIN,)), 100)[0] == "Not running in some windows: spin."
    assert drawn(Blame((SPIN,), 4, 8.8, ()), 100) == ["Too few calls to conclude."]
