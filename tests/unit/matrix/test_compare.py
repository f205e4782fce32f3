"""Two matrices compared: what is claimed, what is not, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from factories.matrices import CALL, COLUMNS, FINGERPRINT, ROWS, WAIT, made_up
from stallprobes.errors import NotComparable
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import Window
from stallprobes.matrix.comparing.comparability import differences
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import CellChange, Change, Comparison, QuantileChange
from stallprobes.matrix.matrix import QUIET, Cell, CellPlace, Matrix, Repeat, Status
from stallprobes.model import Channel, Phase

D2D_SPIN = ("d2d", "spin")
OTHER = ("launch", "spin")


def put(matrix: Matrix, *cells: Cell) -> Matrix:
    return matrix.changed(cells={**matrix.cells, **{(cell.row, cell.column): cell for cell in cells}})


def without(matrix: Matrix, *keys: tuple[str, str]) -> Matrix:
    return matrix.changed(cells={key: cell for key, cell in matrix.cells.items() if key not in keys})


def redrawn(
    matrix: Matrix,
    key: tuple[str, str],
    draw: Callable[[np.random.Generator, int], np.ndarray],
    channel: Channel = CALL,
    seed: int = 5,
    **more: object,
) -> Matrix:
    """``matrix`` with one lane of a cell drawn anew: ``draw`` gets the dice and a repeat's number, and gives ns."""
    dice = np.random.default_rng(seed)
    cell = matrix.cells[key]
    repeats = []
    for number, repeat in enumerate(cell.repeats):
        values = draw(dice, number)
        repeats.append(
            replace(
                repeat,
                window=replace(
                    repeat.window,
                    channels={**repeat.window.channels, channel: Histogram.of(values.astype(np.int64))},
                    iterations=len(values),
                ),
            )
        )
    return put(matrix, cell.changed(repeats=tuple(repeats), **more))


def stall(dice: np.random.Generator, number: int) -> np.ndarray:
    """250 D2D calls as in quiet, of which one in 25 takes 1.5 times the quiet p99."""
    values = 3800 * np.exp(dice.normal(0, 0.15, 250))
    return np.where(dice.random(250) < 0.04, 1.5 * 3800 * math.exp(2.326 * 0.15), values)


def around(
    middle_ns: float, calls: int = 250, spread: float = 0.05
) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda dice, number: middle_ns * np.exp(dice.normal(0, spread, calls))


def cell(comparison: Comparison, key: tuple[str, str] = D2D_SPIN) -> CellChange:
    return next(one for one in comparison.cells if (one.row, one.column) == key)


def part(comparison: Comparison, q: int, channel: Channel = CALL, key: tuple[str, str] = D2D_SPIN) -> QuantileChange:
    return next(one for one in cell(comparison, key).parts if (one.quantile.percent, one.channel) == (q, channel))


def changed(comparison: Comparison) -> set[tuple[str, str]]:
    return {(one.row, one.column) for one in comparison.cells if one.change in (Change.WORSE, Change.BETTER)}


@pytest.mark.parametrize(("spread", "drift"), [(0.1, 0.0), (0.3, 0.0), (0.15, 0.05), (0.15, 0.15), (0.3, 0.1)])
def test_nothing_changed_is_never_called_worse_or_better(spread: float, drift: float) -> None:
    made = [made_up(seed, spread=spread, drift=drift) for seed in range(5)]
    assert not any(changed(compare(old, new)) for old, new in combinations(made, 2))


def test_a_check_compared_with_itself_is_the_same_everywhere() -> None:
    matrix = made_up(1, drift=0.1)
    assert compare(matrix, matrix).counts() == {
        Change.SAME: len(matrix.cells), Change.WORSE: 0, Change.BETTER: 0, Change.UNSURE: 0
    }  # fmt: skip


def test_a_stall_of_one_call_in_25_is_found_at_p99_of_its_channel_and_nowhere_else() -> None:
    found = 0
    for seed in range(10):
        comparison = compare(made_up(seed), redrawn(made_up(100 + seed), D2D_SPIN, stall, seed=seed))
        assert changed(comparison) <= {D2D_SPIN}
        assert part(comparison, 50).change is Change.SAME
        assert part(comparison, 99, WAIT).change is Change.SAME
        found += part(comparison, 99).change is Change.WORSE
    assert found == 10


def test_the_same_two_checks_the_other_way_round_are_better() -> None:
    fine, slow = made_up(1), made_up(2, times={D2D_SPIN: 1.5})
    there, back = compare(fine, slow), compare(slow, fine)
    assert {one.change for one in cell(there).parts} == {Change.WORSE}
    assert {one.change for one in cell(back).parts} == {Change.BETTER}
    assert part(there, 50).ratio == pytest.approx(1 / (part(back, 50).ratio or 0), rel=1e-3)
    assert changed(there) == changed(back) == {D2D_SPIN}


def test_what_is_told_is_what_the_histograms_say() -> None:
    old, new = made_up(1), made_up(2, times={D2D_SPIN: 1.5})
    told = part(compare(old, new), 50)
    before, now = (matrix.cells[D2D_SPIN].channels[CALL].percentile(50) or 0.0 for matrix in (old, new))
    assert (told.old_ns, told.new_ns, told.ratio) == (round(before), round(now), round(now / before, 3))
    assert told.why == "3.79 µs → 5.66 µs (×1.5)."


@pytest.mark.parametrize("factor", [1.1, 1 / 1.1])
def test_a_sure_but_small_change_is_the_same(factor: float) -> None:
    assert not changed(compare(made_up(1, spread=0.02), made_up(2, spread=0.02, times={D2D_SPIN: factor})))


def test_nanoseconds_do_not_matter_however_many_times_they_are() -> None:
    old = redrawn(made_up(1), D2D_SPIN, around(150))
    new = redrawn(made_up(2), D2D_SPIN, around(300))
    assert cell(compare(old, new)).change is Change.SAME


def test_one_repeat_alone_makes_no_change() -> None:
    new = redrawn(made_up(2), D2D_SPIN, lambda dice, number: around(12_000 if number == 2 else 3_800)(dice, number))
    told = part(compare(made_up(1), new), 99)
    assert told.change is Change.SAME
    assert told.why.endswith("within chance: one repeat alone causes the difference.")
    assert told.ratio is not None
    assert told.detectable is not None
    assert told.detectable > told.ratio


def test_repeats_that_differ_among_themselves_as_much_leave_it_open() -> None:
    middles = (4_000, 9_000, 6_000, 14_000)
    new = redrawn(made_up(2), D2D_SPIN, lambda dice, number: around(middles[number])(dice, number))
    told = part(compare(made_up(1, drift=0.1), new), 50)
    assert told.change is Change.SAME
    assert told.why.endswith("within chance: the repeats vary too much.")
    assert told.detectable == pytest.approx(4, rel=0.1)


def test_a_change_of_the_mean_of_the_repeats_alone_leaves_it_open() -> None:
    def before(dice: np.random.Generator, number: int) -> np.ndarray:
        return around(51_000, 3_000)(dice, number) if number == 3 else around(50_000, 300)(dice, number)

    def now(dice: np.random.Generator, number: int) -> np.ndarray:
        return around(70_000, 3_000)(dice, number) if number == 3 else around(72_500, 300)(dice, number)

    told = part(compare(redrawn(made_up(1), D2D_SPIN, before), redrawn(made_up(2), D2D_SPIN, now)), 50)
    assert told.change is Change.UNSURE
    assert told.ratio == pytest.approx(1.38, rel=0.01)
    assert told.why.endswith("but only the mean of the repeats differs by ×1.4.")


def test_one_repeat_by_itself_claims_nothing() -> None:
    comparison = compare(made_up(1, repeats=1), made_up(2, repeats=1, times={D2D_SPIN: 3.0}))
    assert not changed(comparison)
    assert cell(comparison).change is Change.UNSURE


@pytest.mark.parametrize("calls", [4, 12])
def test_a_slow_cell_is_judged_by_the_middle_of_its_few_calls(calls: int) -> None:
    old = redrawn(made_up(1), D2D_SPIN, around(2.4e6, calls), channel=WAIT)
    new = redrawn(made_up(2), D2D_SPIN, around(5.0e6, calls), channel=WAIT)
    comparison = compare(old, new)
    assert part(comparison, 50, WAIT).change is Change.WORSE
    assert [one.quantile for one in cell(comparison).parts if one.channel == WAIT] == [Quantile.P50]
    assert cell(compare(old, old)).change is Change.SAME


def test_too_few_calls_leave_it_open() -> None:
    old = redrawn(made_up(1), D2D_SPIN, around(2.4e6, 1))
    told = part(compare(old, redrawn(made_up(2), D2D_SPIN, around(5.0e6, 1))), 50)
    assert told.change is Change.UNSURE
    assert told.why.endswith("but too few of 4 and 4 calls are beyond it.")


def test_a_percentile_that_falls_among_rare_outliers_is_the_same() -> None:
    def outliers(calls: int) -> Callable[[np.random.Generator, int], np.ndarray]:
        return lambda dice, number: np.append(around(3_800, 250 - calls)(dice, number), [40_000.0] * calls)

    told = part(compare(redrawn(made_up(1), D2D_SPIN, outliers(2)), redrawn(made_up(2), D2D_SPIN, outliers(3))), 99)
    assert (told.ratio or 0) > 5
    assert told.change is Change.SAME
    assert "chance" in told.why


def row_times(factor: float) -> dict[tuple[str, str], float]:
    return {("d2d", column.name): factor for column in COLUMNS}


def with_quiet(matrix: Matrix, row: str, factor: float) -> Matrix:
    """``matrix`` with the quiets beside the cells of ``row`` ``factor`` times as long."""

    def longer(channels: Mapping[Channel, Histogram]) -> dict[Channel, Histogram]:
        return {
            channel: Histogram.of(
                int(lower * factor) for lower, count in histogram.pairs() for _ in range(count)
            )
            for channel, histogram in channels.items()
        }  # fmt: skip

    cells = [
        one.changed(repeats=tuple(replace(r, before=longer(r.before), after=longer(r.after)) for r in one.repeats)
        )
        for one in matrix.cells.values()
        if one.row == row and one.column != QUIET
    ]  # fmt: skip
    return put(matrix, *cells)


def test_a_whole_row_that_moved_is_told_once_in_its_quiet() -> None:
    old, new = made_up(1), with_quiet(made_up(2, times=row_times(1.5)), "d2d", 1.5)
    comparison = compare(old, new)
    assert changed(comparison) == {("d2d", QUIET)}
    assert cell(comparison).change is Change.SAME
    assert part(comparison, 50).why == "It changed with the baseline of its row, which is ×1.5 the old one."


def test_a_cell_that_moved_more_than_its_row_is_told_too() -> None:
    old, new = made_up(1), with_quiet(made_up(2, times={**row_times(1.3), D2D_SPIN: 2.0}), "d2d", 1.3)
    assert changed(compare(old, new)) == {("d2d", QUIET), D2D_SPIN}


def test_a_row_that_moved_a_little_makes_none_of_its_cells_slower() -> None:
    old, new = made_up(1), with_quiet(made_up(2, times={**row_times(1.17), D2D_SPIN: 1.5}), "d2d", 1.17)
    comparison = compare(old, new)
    assert not changed(comparison)
    assert cell(comparison).change is Change.UNSURE
    assert part(comparison, 50).why.endswith("but the baseline of this row is ×1.2 too.")


def test_quiet_that_moved_beside_the_cells_only_is_not_hidden() -> None:
    old, new = made_up(1), with_quiet(made_up(2), "d2d", 1.3)
    told = part(compare(old, new), 50, key=("d2d", QUIET))
    assert told.change is Change.UNSURE
    assert told.why == "The baseline of this row's other cells is ×1.3 the old one."


def test_a_stall_far_above_quiet_is_not_explained_by_it() -> None:
    old = redrawn(made_up(1), D2D_SPIN, around(2.4e6))
    new = redrawn(with_quiet(made_up(2, times=row_times(1.5)), "d2d", 1.5), D2D_SPIN, around(3.6e6))
    assert part(compare(old, new), 50).change is Change.UNSURE


def starve(matrix: Matrix, key: tuple[str, str] = D2D_SPIN, calls: int = 1) -> Matrix:
    starved = redrawn(
        matrix,
        key,
        around(5e8, calls),
        status=Status.STARVED,
        in_flight_ns=8 * 10**8,
        in_flight_op="cuMemcpyDtoDAsync",
    ).cells[key]
    return put(
        matrix,
        starved.changed(
            repeats=tuple(replace(r, window=replace(r.window, duration_ns=500_000_000)) for r in starved.repeats),
        ),
    )


def test_a_newly_starved_cell_is_slower_and_fails_by_its_own_name() -> None:
    fine, starved = made_up(1), starve(made_up(2))
    comparison = compare(fine, starved)
    told = cell(comparison)
    assert (told.change, told.newly_starved, told.no_longer_starved) == (Change.WORSE, True, False)
    assert told.note == "Starved now and not before: cuMemcpyDtoDAsync was in flight for 800 ms."
    assert comparison.regressions() == comparison.regressions({"starved"}) == (told,)
    assert not comparison.regressions({"worse"})


def test_a_cell_that_starves_no_longer_is_better() -> None:
    told = cell(compare(starve(made_up(1)), made_up(2)))
    assert (told.change, told.newly_starved, told.no_longer_starved) == (Change.BETTER, False, True)


def test_a_cell_that_starves_in_both_is_the_same() -> None:
    told = cell(compare(starve(made_up(1)), starve(made_up(2))))
    assert told.change is Change.SAME
    assert told.note.startswith("Starved in both")


def test_a_cell_that_was_close_to_starving_is_unsure() -> None:
    nearly = put(starve(made_up(1)), starve(made_up(1), calls=4).cells[D2D_SPIN].changed(status=Status.OK))
    told = cell(compare(nearly, starve(made_up(2))))
    assert (told.change, told.newly_starved) == (Change.UNSURE, False)
    assert "was close to it" in told.note


def test_a_call_in_flight_for_long_counts() -> None:
    usual = made_up(2).cells[D2D_SPIN]
    barren = tuple(
        replace(one, window=replace(one.window, iterations=number)) for number, one in enumerate(usual.repeats)
    )
    hung = put(made_up(2), usual.changed(in_flight_ns=300_000_000, repeats=barren))
    assert not cell(compare(made_up(1), put(made_up(2), usual.changed(in_flight_ns=300_000_000)))).newly_starved
    assert cell(compare(made_up(1), hung)).newly_starved
    assert cell(compare(hung, made_up(1))).no_longer_starved
    assert cell(compare(hung, hung)).change is Change.SAME


def test_a_call_in_flight_no_longer_than_others_took_is_nothing_new() -> None:
    long = redrawn(made_up(1), D2D_SPIN, around(1.3e8, 5))
    hung = put(long, long.cells[D2D_SPIN].changed(in_flight_ns=120_000_000))
    assert cell(compare(long, hung)).change is Change.SAME


@pytest.mark.parametrize(
    ("old", "new", "change", "note"),
    [
        (Status.UNSUPPORTED, Status.UNSUPPORTED, Change.SAME, "Unsupported in both: No second GPU."),
        (Status.OK, Status.UNSUPPORTED, Change.UNSURE, "Unsupported in the new check: No second GPU."),
        (Status.UNSUPPORTED, Status.OK, Change.UNSURE, "Unsupported in the old check: No second GPU."),
        (Status.OK, Status.INVALID, Change.UNSURE, "Invalid in the new check: No second GPU."),
        (Status.INVALID, Status.INVALID, Change.UNSURE, "Invalid in the new check: No second GPU."),
    ],
)
def test_what_was_not_measured_well_is_said(old: Status, new: Status, change: Change, note: str) -> None:
    def of(status: Status) -> Matrix:
        reason = None if status is Status.OK else "No second GPU."
        return put(made_up(1), made_up(1).cells[D2D_SPIN].changed(status=status, reason=reason))

    told = cell(compare(of(old), of(new)))
    assert (told.change, told.note, told.parts) == (change, note, ())


def test_cells_of_one_check_alone_are_listed() -> None:
    missing = put(made_up(1), Cell(*OTHER, Status.MISSING))
    comparison = compare(missing, without(made_up(2), D2D_SPIN))
    assert (comparison.only_old, comparison.only_new) == ((CellPlace(*D2D_SPIN),), (CellPlace(*OTHER),))
    assert len(comparison.cells) == len(missing.cells) - 2
    assert not compare(missing, missing).only_old


def test_where_a_turn_makes_several_calls_each_is_judged_by_itself() -> None:
    record, query = Channel(Phase.CALL, "record"), Channel(Phase.CALL, "query")

    def labelled(seed: int, record_ns: float) -> Matrix:
        made = redrawn(made_up(seed), D2D_SPIN, around(1_300), channel=query, seed=seed)
        return redrawn(made, D2D_SPIN, around(record_ns), channel=record, seed=seed)

    comparison = compare(labelled(1, 2_000), labelled(2, 4_000))
    channels = {one.channel: one.change for one in cell(comparison).parts if one.quantile is Quantile.P50}
    assert channels == {query: Change.SAME, record: Change.WORSE, WAIT: Change.SAME}
    assert {one.channel for one in cell(compare(made_up(1), labelled(2, 4_000))).parts} == {CALL, WAIT}


def test_the_same_machines_are_each_compared_with_themselves() -> None:
    """Two slow hosts beside two fast ones hide no change that all of them show."""

    def of(seed: int, factor: float) -> Matrix:
        def draw(dice: np.random.Generator, number: int) -> np.ndarray:
            return around((3_000, 6_000, 3_000, 6_000)[number] * factor)(dice, number)

        made = made_up(seed)
        for key in made.cells:
            made = redrawn(made, key, draw, seed=seed + len(key[1]))
        hosts = {f"node-{n}": FINGERPRINT for n in range(4)}
        cells = [
            one.changed(repeats=tuple(replace(r, host=h) for r, h in zip(one.repeats, hosts, strict=True)))
            for one in made.cells.values()
        ]
        return put(made, *cells).changed(hosts=hosts)

    slow = of(2, 1.5).cells[D2D_SPIN]
    slow = slow.changed(repeats=tuple(reversed(slow.repeats)))
    assert changed(compare(of(1, 1.0), put(of(3, 1.0), slow))) == {D2D_SPIN}


def fingerprinted(**values: object) -> Matrix:
    return made_up(1, calls=20).changed(fingerprint={**FINGERPRINT, **values})


def test_differences_come_by_what_matters_and_dates_never() -> None:
    old = fingerprinted(
        date="2026-11-21", uuid="GPU-1", python="3.11", packages={"numpy": "2.0", "simpy": "4.1"}, kernel="6.1",
        environment={"CUDA_MODULE_LOADING": "EAGER"}, cpu="A", driver="580", cuda="13.0", unknown={"mps": "why"}, pid=1,
    )  # fmt: skip
    new = fingerprinted(
        date="2026-11-22", uuid="GPU-2", python="3.12", packages={"numpy": "2.1", "simpy": "4.1"}, kernel="6.2",
        environment={"CUDA_VISIBLE_DEVICES": "0"}, cpu="B", driver="590", cuda="13.1", extra=1, pid=2,
    )  # fmt: skip
    told = compare(old, new.changed(program="2.0")).differences
    assert [one.key for one in told] == [
        "driver", "cuda", "cpu", "environment.CUDA_MODULE_LOADING", "environment.CUDA_VISIBLE_DEVICES", "extra",
        "kernel", "program", "uuid", "python", "packages.numpy",
    ]  # fmt: skip
    assert (told[0].old, told[0].new) == ("580", "590")
    assert (told[3].old, told[3].new) == ("EAGER", None)
    assert not differences(old, old)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ({}, {"backend": "simulated"}, "The old check was made on a real GPU, the new one on the simulated GPU."),
        ({"profile": "a"}, {"profile": "b"}, "The old check simulates the profile a, the new one b."),
        ({"fingerprint": {"gpu": "A"}}, {"fingerprint": {"gpu": "B"}}, "check was made on A, the new one on B."),
        ({}, {"hosts": {"a": {}}}, "The old check is of one machine, the new one of several machines."),
        ({}, {"pace_ns": 1_000_000}, "The old check calls every 50.0 µs, the new one every 1.00 ms."),
    ],
)  # fmt: skip
def test_checks_of_different_kinds_are_refused_unless_forced(
    old: dict[str, object], new: dict[str, object], sentence: str
) -> None:
    before, now = (made_up(1, calls=20).changed(**values) for values in (old, new))
    with pytest.raises(NotComparable, match=sentence):
        compare(before, now)
    assert compare(before, now, force=True).cells


def test_an_unknown_gpu_is_compared() -> None:
    assert compare(fingerprinted(gpu=None), fingerprinted(gpu="H200")).differences[0].key == "gpu"


def test_what_fails_is_chosen_by_name() -> None:
    new = starve(made_up(2, times={("d2d", "alloc-async"): 2.0, OTHER: 0.4}))
    invalid = ("d2h-pinned", "spin")
    comparison = compare(made_up(1), put(new, Cell(*invalid, Status.INVALID, "The aggressor did not run.")))
    failing = {
        name: {(one.row, one.column) for one in comparison.regressions({name})}
        for name in ("worse", "starved", "better", "unsure")
    }
    assert failing == {
        "worse": {("d2d", "alloc-async")},
        "starved": {D2D_SPIN},
        "better": {OTHER},
        "unsure": {invalid},
    }
    assert len(comparison.regressions()) == 2
    assert not comparison.regressions(())
    with pytest.raises(ValueError, match="slwer"):
        comparison.regressions({"slwer"})


def test_every_row_is_held_against_its_own_quiet() -> None:
    comparison = compare(made_up(1), with_quiet(made_up(2, times=row_times(1.4)), "d2d", 1.4))
    assert all(one.change is Change.SAME for one in comparison.cells if one.row != "d2d")
    assert len(comparison.cells) == len(ROWS) * len(COLUMNS)


def counts(*values_ns: int) -> np.ndarray:
    return Histogram.of(values_ns).counts.astype(np.int64)


def test_an_empty_repeat_takes_no_part() -> None:
    nothing = Repeat(Window({}, 0, 12_500_000))
    old = made_up(1)
    some = old.cells[D2D_SPIN].changed(repeats=(*old.cells[D2D_SPIN].repeats, nothing))
    assert cell(compare(put(old, some), old)).change is Change.SAME
    none = compare(put(old, some.changed(repeats=(nothing,))), old)
    assert {one.change for one in cell(none).parts} == {Change.UNSURE}
    told = part(none, 50)
    assert (told.old_ns, told.ratio, told.why) == (None, None, "The old check has no calls.")
    neither = compare(*[put(old, some.changed(repeats=(nothing,)))] * 2)
    assert (cell(neither).change, cell(neither).note) == (Change.UNSURE, "No calls.")
