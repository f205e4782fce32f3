"""References: what is unusual by one, when nothing is named, the maker, and the document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import stallprobes
from factories import matrices
from stallprobes.errors import CheckFileError, NotComparable
from stallprobes.files import schemas
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import check_file, reference_choice, reference_file, reference_maker, references
from stallprobes.matrix.matrix import Matrix, Status
from stallprobes.matrix.reference import (
    REFERENCE_SCHEMA,
    CellState,
    Reference,
    ReferenceCell,
    ReferenceComparison,
    ReferenceFingerprint,
)

MACHINE = {"hostname": "node-a", "gpu": "Made-up GPU", "driver": "580.1", "cuda": "13.0", "mig": False}
STALL = ("launch", "spin")
CALM_MACHINE = ReferenceFingerprint("Made-up GPU", "580.1", "13.0", None, None, False, None, None)


def check(seed: int, stalls: Iterable[tuple[str, str]] = (), factor: float = 50.0, **more: Any) -> Matrix:
    made = matrices.made_up(seed, times=dict.fromkeys(stalls, factor), fingerprint=MACHINE, **more)
    return made.changed(started_at=f"2026-11-{seed:02}T10:00:00+00:00")


def made(*checks: Matrix) -> Reference:
    return reference_maker.make("made-up", checks)


@pytest.fixture(scope="module")
def calm() -> Reference:
    return made(check(1), check(2))


@pytest.fixture(scope="module")
def stalling() -> Reference:
    return made(check(1, [STALL]), check(2, [STALL]))


def counts(found: ReferenceComparison) -> tuple[int, int, int, int]:
    return found.compared, found.absent, found.disagreed, found.unjudged


def test_a_stall_that_no_check_of_the_reference_has_is_unusual(calm: Reference) -> None:
    found = calm.unusual(check(3, [STALL]))
    (cell,) = found.stalled_here
    assert (cell.row, cell.column, cell.phase, cell.quantile) == ("launch", "spin", "call", "p50")
    assert cell.ratio == pytest.approx(50, rel=0.1)
    assert cell.there is not None
    assert cell.there[1] < 1.2
    assert found.stalled_there == ()
    assert counts(found) == (16, 0, 0, 0)


def test_a_stall_that_every_check_of_the_reference_has_and_this_one_has_not_is_unusual(stalling: Reference) -> None:
    (cell,) = stalling.unusual(check(3)).stalled_there
    assert (cell.row, cell.column) == STALL
    assert cell.ratio == pytest.approx(1, rel=0.1)
    assert cell.there is not None
    assert cell.there[0] > 40


def test_without_a_difference_nothing_is_unusual(calm: Reference, stalling: Reference) -> None:
    for one, found in ((calm, calm.unusual(check(3))), (stalling, stalling.unusual(check(3, [STALL])))):
        assert (found.reference, found.stalled_here, found.stalled_there, found.differences) == (one, (), (), ())


def test_a_cell_on_which_the_reference_disagrees_is_never_named() -> None:
    mixed = made(check(1, [STALL]), check(2))
    for here in (check(3), check(3, [STALL])):
        found = mixed.unusual(here)
        assert (found.stalled_here, found.stalled_there) == ((), ())
        assert counts(found) == (15, 0, 1, 0)


def test_a_ratio_close_to_the_limit_of_a_stall_is_not_named() -> None:
    slower = made(check(1, [STALL], factor=2.5), check(2, [STALL], factor=2.5))
    assert slower.unusual(check(3, [STALL], factor=4)).stalled_here == ()
    assert len(slower.unusual(check(3, [STALL], factor=8)).stalled_here) == 1


def test_too_few_calls_do_not_show_that_a_stall_is_absent(stalling: Reference) -> None:
    few = stalling.unusual(check(3, calls=4))
    assert (few.stalled_there, few.compared) == ((), 16)


def test_a_starved_victim_is_unusual_without_a_ratio(calm: Reference) -> None:
    whole = check(3, [STALL])
    verdict = (
        whole.cells[STALL]
        .verdicts[0]
        .changed(kind=stallprobes.VerdictKind.STARVED, quantile=Quantile.IN_FLIGHT, ratio=None)
    )
    starved = whole.cells[STALL].changed(status=Status.STARVED, verdicts=(verdict,), repeats=())
    (cell,) = calm.unusual(whole.changed(cells={**whole.cells, STALL: starved})).stalled_here
    assert (cell.quantile, cell.ratio, cell.distance) == ("in-flight", None, float("inf"))
    everywhere = made(*(one.changed(cells={**one.cells, STALL: starved}) for one in (check(1), check(2))))
    (cell,) = everywhere.unusual(check(3)).stalled_there
    assert cell.ratio == pytest.approx(1, rel=0.1)
    assert cell.there is None


def test_cells_that_are_not_on_both_sides_are_counted_and_not_named(calm: Reference) -> None:
    whole = check(3, [STALL])
    rows = tuple(row.changed(context="green") if row.name == "launch" else row for row in whole.rows)
    found = calm.unusual(whole.changed(rows=rows))
    assert (found.stalled_here, counts(found)) == ((), (12, 4, 0, 0))
    missing = {key: cell.changed(status=Status.MISSING, repeats=()) for key, cell in whole.cells.items()}
    assert counts(calm.unusual(whole.changed(cells=missing))) == (0, 0, 0, 16)


def test_other_machines_are_refused_and_other_drivers_are_named(calm: Reference) -> None:
    whole = check(3)
    others: list[dict[str, Any]] = [
        {"fingerprint": {**MACHINE, "gpu": "Another GPU"}},
        {"fingerprint": {}},
        {"pace_ns": 1_000_000},
        {"hosts": {"node-a": MACHINE, "node-b": MACHINE}},
    ]
    for changed in others:
        with pytest.raises(NotComparable):
            calm.unusual(whole.changed(**changed))
    newer = whole.changed(fingerprint={**MACHINE, "driver": "590.2", "mig": True, "hostname": "node-z"})
    assert [(one.key, one.old, one.new) for one in calm.unusual(newer).differences] == [
        ("driver", "580.1", "590.2"),
        ("mig", False, True),
    ]


def test_a_simulated_gpu_is_compared_with_the_model_that_it_simulates(calm: Reference) -> None:
    marked = {"gpu": "Made-up GPU (SIMULATED)", "driver": "580.1 (SIMULATED)"}
    found = calm.unusual(check(3).changed(backend="simulated", profile="made-up", fingerprint=marked))
    assert (found.simulated, found.differences, found.compared) == (True, (), 16)


def test_of_several_references_the_one_with_the_nearest_driver_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        f"made-up-{driver}": made(check(1), check(2)).changed(fingerprint=CALM_MACHINE.changed(driver=driver))
        for driver in ("535.9", "580.2", "590.1")
    }
    monkeypatch.setattr(references, "names", lambda: tuple(known))
    monkeypatch.setattr(reference_choice, "shipped", known.__getitem__)
    for driver, nearest in (("580.159.04", "580.2"), ("600.1", "590.1"), ("470", "535.9")):
        found = reference_choice.reference_for(check(3).changed(fingerprint={**MACHINE, "driver": driver}))
        assert found is not None
        assert found.driver == nearest
    assert reference_choice.reference_for(check(3).changed(fingerprint={**MACHINE, "gpu": "Another GPU"})) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "simulated"}, "not of a real GPU"),
        ({"quick": True}, "quick"),
        ({"interrupted": True}, "interrupted"),
        ({"hosts": {"node-a": MACHINE}}, "merged"),
        ({"fingerprint": {**MACHINE, "driver": "590.2"}}, "differ in driver"),
        ({"pace_ns": 1_000_000}, "period"),
        ({"rows": (matrices.ROWS[0].changed(context="green"), *matrices.ROWS[1:])}, "by one name"),
    ],
)
def test_checks_that_do_not_belong_together_make_no_reference(change: dict[str, Any], words: str) -> None:
    with pytest.raises(NotComparable, match=words):
        made(check(1), check(2).changed(**change))


def test_one_check_makes_no_reference() -> None:
    with pytest.raises(NotComparable, match="at least 2"):
        made(check(1))


def test_the_maker_writes_a_file_that_the_library_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / f"check-{seed}.json.gz") for seed in (2, 1)]
    for seed, file in zip((2, 1), files, strict=True):
        check_file.save(check(seed), file)
    out = tmp_path / "made-up.json"
    assert reference_maker.main([str(out), *files]) is None
    assert out.read_text(encoding="utf-8") == reference_file.text(made(check(1), check(2)))
    found = stallprobes.unusual(check(3, [STALL]), str(out))
    assert found is not None
    assert (found.reference.name, len(found.stalled_here)) == ("made-up", 1)
    assert str(reference_maker.main([str(out), files[0], str(tmp_path / "none")])).startswith("error: ")
    assert "is a folder" in str(reference_maker.main([f"{tmp_path}/made-up/", *files]))
    assert str(reference_maker.main([])).startswith("usage: ")


def test_no_reference_of_the_package_fits_another_gpu() -> None:
    assert stallprobes.unusual(check(3)) is None


@pytest.mark.parametrize("name", references.names())
def test_every_reference_of_the_package_follows_its_schema_and_is_small(name: str) -> None:
    text = references.text(name)
    assert len(text) < 150_000
    jsonschema.Draft202012Validator(schemas.schema(REFERENCE_SCHEMA)).validate(json.loads(text))
    assert reference_file.text(reference_choice.shipped(name)) == text


def test_a_document_that_is_read_is_the_one_that_was_written(calm: Reference, stalling: Reference) -> None:
    for one in (calm, stalling):
        again = reference_file.read(reference_file.text(one).encode())
        assert (again.cells, again.rows, again.checks) == (one.cells, one.rows, one.checks)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schema",), "stallscope.reference/3"),
        (("machines",), 0),
        (("checks",), []),
        (("cells", 0, "row"), "unknown"),
        (("cells", 0, "checks"), {"fine": 1}),
        (("cells", 0, "ratios", "call", "p50"), [2.0, 1.0]),
        (("cells", 0, "ratios", "call"), {"p75": [1.0, 1.0]}),
        (("cells", 0, "ratios"), {"sleep": {"p50": [1.0, 1.0]}}),
        (("rows", 0, "baseline_ns", "call"), "fast"),
    ],
)
def test_a_file_that_is_no_reference_is_refused_in_a_sentence(
    calm: Reference, tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    document = json.loads(reference_file.text(calm))
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path = tmp_path / "reference.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(CheckFileError) as caught:
        reference_choice.load(str(path))
    assert str(caught.value).startswith(f"{path} is not a reference: ")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": 1}', b"\xff", b'{"schema": "stallscope.check/3"}'])
def test_any_other_content_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "reference.json"
    path.write_bytes(content)
    with pytest.raises(CheckFileError, match="is not a reference"):
        reference_choice.load(str(path))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CheckFileError, match=r"h200-580\.159\.04"):
        reference_choice.load("h100")


def test_states_count_as_agreement_only_if_they_are_clear() -> None:
    def stalls(**checks: int) -> bool | None:
        return ReferenceCell(*STALL, {CellState(state): number for state, number in checks.items()}, {}).stalls

    assert stalls(quiet=2) is False
    assert stalls(quiet=1, slower=1) is False
    assert stalls(stalled=3, starved=1) is True
    assert stalls(quiet=1) is None
    assert stalls(stalled=3, quiet=1) is None
    assert stalls(quiet=3, unclear=1) is None
