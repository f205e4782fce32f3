"""Checks whose cells have differing numbers of repeats: every reader and report accepts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import documents, matrices
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix import check_file, merge, prometheus, reference_maker
from stallprobes.matrix import document as check_document
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.matrix.matrix import QUIET, Matrix
from stallprobes.wording import check_wording
from stallscope.report import html_page

MACHINE = {"hostname": "node-a", "gpu": "Made-up GPU", "driver": "580.1", "cuda": "13.0", "mig": False}
D2D_SPIN = ("d2d", "spin")
NOISE = 2.2


def uneven(seed: int, **more: Any) -> Matrix:
    return matrices.uneven(seed, steps=NOISE, fingerprint=MACHINE, **more)


def even(seed: int, **more: Any) -> Matrix:
    return matrices.made_up(seed, steps=NOISE, rough=2.0, fingerprint=MACHINE, **more)


def test_a_saved_check_keeps_all_repeats_and_says_how_many(tmp_path: Path) -> None:
    matrix = uneven(1)
    check_file.save(matrix, tmp_path / "a.json.gz")
    found = check_file.load(tmp_path / "a.json.gz")
    assert documents.of_check(found) == documents.of_check(matrix)
    documents.validator(check_document.CHECK_SCHEMA).validate(documents.of_check(found))
    assert [len(c.repeats) for c in found.cells.values()] == [len(c.repeats) for c in matrix.cells.values()]
    assert len({len(cell.repeats) for cell in found.cells.values()}) > 2
    most = max(len(cell.repeats) for cell in found.cells.values())
    assert f"4 to {most} repeats in 60 s" in check_wording.check_title(found)
    assert "4 repeats in 60 s" in check_wording.check_title(even(1))


def test_a_merge_counts_every_call_of_every_repeat() -> None:
    known = [uneven(seed).changed(fingerprint={**MACHINE, "hostname": f"node-{seed}"}) for seed in (1, 2, 3)]
    known.append(even(4).changed(fingerprint={**MACHINE, "hostname": "node-4"}))
    found = merge.merge([(f"{n}.json", one) for n, one in enumerate(known)])
    for key, cell in found.matrix.cells.items():
        assert cell.iterations == sum(one.cells[key].iterations for one in known)
        assert [repeat.host for repeat in cell.repeats] == list(found.matrix.hosts)
    assert "4 repeats in" in check_wording.check_title(found.matrix)
    assert found.outliers == ()
    again = merge.merge([("a.json", found.matrix), ("b.json", uneven(5))]).matrix
    assert len(again.hosts) == 5
    counts = Counter(compare(found.matrix, found.matrix).counts())
    assert counts[Change.SAME] == len(found.matrix.cells)


@pytest.mark.parametrize(("old", "new"), [(uneven, uneven), (even, uneven), (uneven, even)])
def test_equal_machines_compare_as_the_same_whichever_check_has_more_repeats(
    old: Callable[..., Matrix], new: Callable[..., Matrix]
) -> None:
    comparison = compare(old(10), new(11))
    assert comparison.counts()[Change.WORSE] == comparison.counts()[Change.BETTER] == 0
    assert comparison.counts()[Change.UNSURE] <= 1
    slow = compare(old(1), new(2, times={D2D_SPIN: 12.0}))
    assert [(one.row, one.column) for one in slow.cells if one.change is Change.WORSE] == [D2D_SPIN]


def test_additional_repeats_of_a_cell_let_a_comparison_detect_smaller_changes_in_it() -> None:
    calm, rough = matrices.made_up(1, steps=1.05), even(2, repeats=8).cells[D2D_SPIN]
    found = []
    for repeats in (4, 8):
        matrix = calm.changed(cells={**calm.cells, D2D_SPIN: rough.changed(repeats=rough.repeats[:repeats])})
        (cell,) = (one for one in compare(matrix, matrix).cells if (one.row, one.column) == D2D_SPIN)
        found.append([part.detectable or np.inf for part in cell.parts if part.quantile is Quantile.P50])
    few, many = np.array(found)
    assert np.all(many < few)


def test_without_additional_repeats_nothing_about_a_comparison_depends_on_them() -> None:
    """The priors come from the first repeats of each cell, so the additional ones of a cell concern no other."""
    old, new = even(1), even(2)
    # Another cell has additional repeats in both comparisons.
    key = ("launch", "alloc-async")
    old = old.changed(cells={**old.cells, key: even(1, repeats=6).cells[key]})
    more = new.changed(cells={**new.cells, D2D_SPIN: even(2, repeats=9).cells[D2D_SPIN]})
    # The first four repeats of the cell are its own too, so that only the number differs.
    own = more.cells[D2D_SPIN].changed(repeats=(*new.cells[D2D_SPIN].repeats, *more.cells[D2D_SPIN].repeats[4:]))
    more = more.changed(cells={**more.cells, D2D_SPIN: own})
    few, many = compare(old, new), compare(old, more)
    others = [
        [part.detectable for cell in one.cells if (cell.row, cell.column) != D2D_SPIN for part in cell.parts]
        for one in (few, many)
    ]
    assert others[0] == others[1]
    own_parts = [next(c for c in one.cells if (c.row, c.column) == D2D_SPIN).parts for one in (few, many)]
    for quantile in PERCENTILES:
        assert [p.detectable for p in own_parts[0] if p.quantile is quantile] != [
            p.detectable for p in own_parts[1] if p.quantile is quantile
        ]


def test_a_reference_is_made_of_them_and_compared_with_them() -> None:
    checks = [uneven(seed).changed(started_at=f"2026-11-2{seed}T10:00:00+00:00") for seed in (1, 2)]
    made = reference_maker.make("made-up", checks)
    found = made.unusual(uneven(3, times={D2D_SPIN: 50.0}))
    assert [(cell.row, cell.column) for cell in found.stalled_here] == [D2D_SPIN]
    assert found.compared == sum(key[1] != QUIET for key in checks[0].cells)


def test_page_report_and_metrics_show_them() -> None:
    matrix = uneven(1, times={D2D_SPIN: 50.0})
    page = html_page.page(matrix, compare(uneven(2), matrix))
    most = max(len(cell.repeats) for cell in matrix.cells.values())
    assert f"4 to {most} repeats" in page
    assert prometheus.text(matrix).count("stallscope_cell_status{") == len(matrix.cells)
