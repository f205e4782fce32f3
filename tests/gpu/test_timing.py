"""The loop times a launch as a C program does, whatever Python does beside it; and how the benchmark judges that."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bench_launch
from benchmarks.bench_launch import BY_LOOP, BY_LOOP_BUSY, BY_THREE_LOOPS, NAMES, Figures
from stallprobes.latency.histogram import Histogram

ROUNDS = 41


def steady(p50: float, p99: float) -> Figures:
    """Figures of rounds that are all alike."""
    return Figures(p50, p99, 11_000, 24_000, 50_000, (p50,) * ROUNDS, (p99,) * ROUNDS)


KNOWN = steady(2_800, 5_700)
AS_KNOWN = dict.fromkeys(NAMES, KNOWN)


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_launch_is_timed_as_c_times_it_beside_busy_python_and_beside_other_probes(tmp_path: Path) -> None:
    # A process of its own, since the benchmark makes a context in the process that runs it.
    figures = tmp_path / "launch.json"
    command = [
        sys.executable,
        bench_launch.__file__,
        "--rounds",
        str(ROUNDS),
        "--seconds",
        "0.1",
        "--json",
        str(figures),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert figures.exists(), done.stdout + done.stderr
    assert json.loads(figures.read_text())["failures"] == [], done.stdout
    assert done.returncode == 0


def test_equal_figures_and_a_faster_loop_fail_no_claim() -> None:
    assert bench_launch.failures(AS_KNOWN) == []
    faster = steady(2_000, 3_000)
    assert bench_launch.failures(AS_KNOWN | {BY_LOOP: faster, BY_LOOP_BUSY: faster, BY_THREE_LOOPS: faster}) == []


@pytest.mark.parametrize(
    ("name", "quantile", "fine", "slow"),
    [
        (BY_LOOP, "p50", 1.02, 1.04),
        (BY_LOOP, "p99", 1.14, 1.16),
        (BY_LOOP_BUSY, "p50", 1.04, 1.06),
        (BY_LOOP_BUSY, "p99", 1.24, 1.26),
        (BY_THREE_LOOPS, "p50", 1.02, 1.04),
        (BY_THREE_LOOPS, "p99", 1.14, 1.16),
    ],
)
def test_a_claim_fails_just_beyond_its_limit_and_says_which(name: str, quantile: str, fine: float, slow: float) -> None:
    def changed(factor: float) -> list[str]:
        p50, p99 = (KNOWN.p50 * factor, KNOWN.p99) if quantile == "p50" else (KNOWN.p50, KNOWN.p99 * factor)
        one = steady(p50, p99)
        return bench_launch.failures(AS_KNOWN | {name: one})

    assert changed(fine) == []
    (sentence,) = changed(slow)
    assert quantile in sentence
    assert f"×{slow:.2f}" in sentence


def test_a_machine_that_is_slow_in_some_rounds_fails_no_claim_and_a_loop_that_is_slow_in_half_of_them_does() -> None:
    def changed(*slow: int) -> list[str]:
        p50s = tuple(KNOWN.p50 * (2 if number in slow else 1) for number in range(ROUNDS))
        return bench_launch.failures(AS_KNOWN | {BY_LOOP: replace(KNOWN, p50s=p50s)})

    assert changed(*range(ROUNDS // 3)) == []
    # The interval reaches beyond the limit, where the median need not.
    assert len(changed(*range(ROUNDS // 2))) == 1


def test_more_rounds_follow_where_the_interval_alone_is_beyond_a_limit() -> None:
    def undecided(*slow: int) -> bool:
        p50s = tuple(KNOWN.p50 * (2 if number in slow else 1) for number in range(ROUNDS))
        return bench_launch.undecided(AS_KNOWN | {BY_LOOP: replace(KNOWN, p50s=p50s)})

    assert not undecided()
    assert undecided(*range(ROUNDS // 2))
    assert not undecided(*range(ROUNDS))


def test_a_figure_is_the_median_of_the_rounds_so_that_one_bad_round_does_not_count() -> None:
    good, bad = Histogram.of([100] * 99 + [120]), Histogram.of([10_000] * 100)
    figures = bench_launch.figures([good, bad, good])
    assert (figures.p50, figures.p99, figures.max, figures.calls) == (100, 100, 120, 300)
    with pytest.raises(ValueError, match="without a single call"):
        bench_launch.figures([good, Histogram.empty()])


def test_the_c_threads_compile_without_a_warning_and_refuse_wrong_arguments(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no gcc and no cc")
    built = tmp_path / "launch.so"
    flags = ["-Wall", "-Wextra", "-Werror", *bench_launch.FLAGS]
    subprocess.run([compiler, *flags, "-o", str(built), str(bench_launch.SOURCE), "-ldl"], check=True)
    run = ctypes.CDLL(str(built)).launch_run
    run.argtypes = (ctypes.c_int, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
    for count, *rest in ((0, 20_000, 1, 1), (17, 20_000, 1, 1), (1, 0, 1, 1), (1, 20_000, 0, 1), (1, 20_000, 1, -1)):
        assert run(count, None, *rest, None) == -1
