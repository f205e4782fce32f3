"""Recorded H200 runs and checks, judged anew: kinds, ratios and exit codes must be the recorded ones.

``tests/data/recorded_verdicts.json.gz`` holds what an earlier version said of the same data, to six significant digits.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from factories.recorded_runs import recorded_run
from stallprobes.catalog import entries
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import ChannelMap, InFlight, Window
from stallprobes.matrix import check_file
from stallprobes.matrix import merge as merging
from stallprobes.matrix.check.cells import CellAccumulator
from stallprobes.matrix.check.plan import AGGRESSORS_STREAM, AggressorSet, VictimProbe
from stallprobes.matrix.comparing import compare as comparing
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change, Comparison
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, Repeat
from stallprobes.measurement.result import RunVariant
from stallprobes.model import Channel, Role
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import parse_probe
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Verdict
from stallscope.cli import main as cli

TESTS = Path(__file__).parents[1]
RECORDED = TESTS / "gpu" / "recorded"
RUNS = ("h200.json", "h200x2.json")
CHECKS = ("check-h200x2-1", "check-h200x2-2", "check-h200-noisy-1", "check-h200-noisy-2")
PAIRS = (CHECKS[0:2], CHECKS[2:4], CHECKS[3:1:-1])
# Two checks in a row on a noisy host with two H200, of the default check with four more columns.
LATER_PAIR = ("check-h200x2-3", "check-h200x2-4")
HOST = entries()["host"].probe()

Json = Any


@cache
def expected() -> Mapping[str, Mapping[str, Json]]:
    found: Mapping[str, Mapping[str, Json]] = json.loads(
        gzip.decompress((TESTS / "data" / "recorded_verdicts.json.gz").read_bytes())
    )
    return found


@cache
def check(name: str) -> Matrix:
    return check_file.load(check_path(name))


@cache
def comparison(old: str, new: str) -> Comparison:
    return compare(check(old), check(new))


def check_path(name: str) -> Path:
    return RECORDED / f"{name}.json.gz"


def six_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def verdict_figures(verdict: Verdict | None) -> Json:
    if verdict is None:
        return None
    phase = None if verdict.phase is None else str(verdict.phase)
    return [verdict.probe, phase, str(verdict.quantile), str(verdict.kind), six_digits(verdict.ratio)]


def run_verdicts(result: RunVariant) -> Json:
    if result.status != "ok":
        return [result.pattern, result.variant, result.status]
    known = {probe.name: probe for probe in patterns()[result.pattern].variant(result.variant).probes}
    evidence = []
    for told in result.probes:
        probe = known[told.name]
        channels = {Channel(phase): figures.distribution for phase, figures in told.phases.items()}
        baseline = {Channel(phase): figures.distribution for phase, figures in told.baseline.items()}
        for op in told.ops:
            channels[Channel(op.phase, op.op)] = op.distribution
            if op.baseline:
                baseline[Channel(op.phase, op.op)] = op.baseline.distribution
        flight = None if told.in_flight_ns is None else InFlight(0, 0, round(told.in_flight_ns), 0)
        window = Window(channels, told.calls, round(told.window_s * 1e9), flight, period_ns=probe.period_ns)
        baselines = () if probe.role is Role.AGGRESSOR else (baseline,)
        evidence.append(Evidence(probe, window, baselines, told.error))
    return [result.pattern, result.variant, [verdict_figures(one) for one in judge(evidence)]]


def stored(cell: Cell) -> Json:
    return [str(cell.kind), str(cell.status), verdict_figures(cell.worst)]


def judged_again(matrix: Matrix, cell: Cell) -> Json:
    """The cell judged from its repeats, as when it was measured; None where there is nothing to judge."""
    if cell.column == QUIET or not cell.repeats:
        return None
    control = matrix.cells["host", cell.column]
    probes = tuple(parse_probe(name, stream=AGGRESSORS_STREAM) for name in matrix.column(cell.column).aggressors)
    victim = None if cell.row == "host" else VictimProbe(matrix.row(cell.row), parse_probe(cell.row))
    accumulator = CellAccumulator(victim, AggressorSet(matrix.column(cell.column), probes))
    accumulator.repeats = list(cell.repeats)
    parts: list[Callable[[Repeat], ChannelMap]] = [
        lambda one: one.window.channels,
        lambda one: one.before,
        lambda one: one.after,
    ]
    accumulator.hosts = tuple(list(map(part, control.repeats)) for part in parts)
    if cell.in_flight_ns is not None:
        accumulator.longest = InFlight(0, 0, cell.in_flight_ns, 0)
    again = accumulator.cell(cell.row, cell.column, matrix.repeats, HOST)
    return [str(again.kind), str(again.status), [verdict_figures(one) for one in again.verdicts]]


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_gives_the_same_verdicts(name: str) -> None:
    assert [run_verdicts(variant) for variant in recorded_run(name).variants] == expected()["runs"][name]


@pytest.mark.parametrize("name", CHECKS)
def test_a_recorded_check_gives_the_same_verdicts(name: str) -> None:
    matrix = check(name)
    found = {
        f"{row} beside {column}": [stored(cell), judged_again(matrix, cell)]
        for (row, column), cell in matrix.cells.items()
    }
    assert found == expected()["checks"][name]


@pytest.mark.parametrize("names", PAIRS, ids=" ".join)
def test_recorded_checks_compare_as_before(names: tuple[str, str]) -> None:
    found = comparison(*names)
    cells = {
        f"{one.row} beside {one.column}": [
            str(one.change),
            one.newly_starved,
            one.no_longer_starved,
            [
                [
                    str(part.channel.phase),
                    part.channel.label,
                    part.quantile.percent,
                    str(part.change),
                    six_digits(part.ratio),
                ]
                for part in one.parts
            ],
        ]
        for one in found.cells
    }
    wanted = expected()["comparisons"][" ".join(names)]
    assert {str(change): number for change, number in found.counts().items()} == wanted["counts"]
    assert cells == wanted["cells"]
    assert [one.key for one in found.differences] == wanted["differences"]


@pytest.mark.parametrize(
    ("names", "half", "nine_of_ten"), [(PAIRS[0], 1.5, 3.0), (LATER_PAIR, 1.5, 3.0), (PAIRS[1], 2.0, 5.0)]
)
def test_recorded_checks_compare_with_few_unsure_cells_and_a_stated_sensitivity(
    names: tuple[str, str], half: float, nine_of_ten: float
) -> None:
    found = comparison(*names)
    counts = found.counts()
    assert counts[Change.UNSURE] <= 0.05 * len(found.cells)
    assert counts[Change.WORSE] == counts[Change.BETTER] == 0
    sensitivity = found.detectable[Quantile.P50]
    assert sensitivity is not None
    assert (sensitivity.half or 99) <= half
    assert (sensitivity.nine_of_ten or 99) <= nine_of_ten


def test_recorded_checks_merge_as_before() -> None:
    first, second = CHECKS[2:]
    found = merging.merge([("a", check(first)), ("b", check(second)), ("c", check(first))])
    wanted = expected()["merges"]["noisy"]
    assert [
        [one.host, one.row, one.column, str(one.channel.phase), one.quantile.percent, six_digits(one.ratio)]
        for one in found.outliers
    ] == wanted["outliers"]
    assert {f"{row} beside {column}": stored(cell) for (row, column), cell in found.matrix.cells.items()} == wanted[
        "cells"
    ]


@pytest.mark.parametrize("command", expected()["exit_codes"])
def test_a_command_on_recorded_checks_exits_as_before(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(old: Matrix, new: Matrix, *, force: bool = False) -> Comparison:
        return comparison(*(next(name for name in CHECKS if check(name) is one) for one in (old, new)))

    words = [str(check_path(word)) if word in CHECKS else word for word in command.split()]
    # The reader that is replaced below must not be needed any more, and ``compared`` reads any of them.
    for name in CHECKS:
        check(name)
    # Each file is read and compared once for all commands.
    monkeypatch.setattr(check_file, "load", lambda path, _: check(Path(path).name.removesuffix(".json.gz")))
    monkeypatch.setattr(comparing, "compare", compared)
    monkeypatch.setattr("sys.argv", ["stallscope", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code or 0) == expected()["exit_codes"][command]
    capsys.readouterr()
