"""Text of one cell on the matrix screen: what recorded checks of other machines say of it."""

from __future__ import annotations

from factories import matrices
from stallscope.tui.matrix.cell import paragraphs
from stallscope.tui.matrix.view_model import MatrixView


def test_the_reference_is_in_the_headline_and_in_each_cell() -> None:
    made = matrices.made_up(1, calls=40, rows=matrices.ROWS[2:3], columns=matrices.COLUMNS[:2])
    view = MatrixView.of(made.changed(fingerprint={"gpu": "NVIDIA H200", "driver": "580.159.04"}))
    assert view.headline is not None
    assert "against other machines (NVIDIA H200, driver 580.159.04): 1 only there" in dict(view.headline)["Changes"]
    there = [text for title, _, text in paragraphs(view, ("d2d@secondary", "spin")) if title == "On other machines"]
    assert there[0].startswith("stalled in 4 of 4 checks; call p50 ×")
    assert "h200-580.159.04: NVIDIA H200, driver 580.159.04" in there[0]
    elsewhere = MatrixView.of(made)
    assert not [
        title for title, _, _ in paragraphs(elsewhere, ("d2d@secondary", "spin")) if title == "On other machines"
    ]
