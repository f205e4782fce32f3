"""Checks of many hosts as one: nothing is lost or counted twice, in whatever steps, and odd hosts are named."""

from __future__ import annotations

import errno
import json
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factories import documents, host_checks, matrices
from factories.host_checks import every_status, host
from stallprobes.errors import CheckFileError
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import merged
from stallprobes.matrix import check_file, merge, outliers, repeat_spool
from stallprobes.matrix.matrix import Cell, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.matrix.merge import Merged
from stallprobes.model import Channel, Phase

ALLOC = ("d2d", "host-alloc-free")


def of(*named: tuple[str, Matrix]) -> Merged:
    return merge.merge(named)


def counts(matrix: Matrix, key: tuple[str, str]) -> list[int]:
    cell = matrix.cells[key]
    return [histogram.count for histogram in (*cell.channels.values(), *cell.baseline.values())]


def test_histograms_add_up_with_one_repeat_for_each_host() -> None:
    known = [host(seed, f"node-{seed}") for seed in (1, 2, 3)]
    found = of(*((f"{seed}.json", one) for seed, one in enumerate(known))).matrix
    assert list(found.hosts) == ["node-1", "node-2", "node-3"]
    for key, cell in found.cells.items():
        assert [repeat.host for repeat in cell.repeats] == list(found.hosts)
        assert counts(found, key) == np.sum([counts(one, key) for one in known], axis=0).tolist()
        for repeat, one in zip(cell.repeats, known, strict=True):
            assert dict(repeat.window.channels) == dict(one.cells[key].channels)
            assert merged((repeat.before, repeat.after)) == dict(one.cells[key].baseline)
            assert repeat.window.iterations == one.cells[key].iterations
    assert found.hosts["node-2"] == known[1].fingerprint


def test_a_merged_check_is_saved_and_read_as_it_is(tmp_path: Path) -> None:
    found = of(("a.json", every_status(1)), ("b.json", every_status(2, "node-b"))).matrix
    check_file.save(found, tmp_path / "m.json")
    assert documents.of_check(check_file.load(tmp_path / "m.json")) == documents.of_check(found)


def test_a_host_is_called_as_given_else_by_its_hostname_else_by_its_file() -> None:
    found = of(
        ("rack 3", host(1, "node-a")), ("x/b.json", host(2, "node-b")), ("x/c.json", host(3)),
        ("d.json.gz", host(4)),
    )  # fmt: skip
    assert list(found.matrix.hosts) == ["rack 3", "node-b", "c", "d"]
    assert found.notes == ()


def test_two_checks_of_one_host_stay_apart_and_a_note_says_so() -> None:
    found = of(("a.json", host(1, "node-a")), ("b.json", host(2, "node-a")), ("c.json", host(3, "node-a")))
    assert list(found.matrix.hosts) == ["node-a", "node-a (2)", "node-a (3)"]
    assert found.notes[0] == "b.json is another check of the host “node-a”: it is named “node-a (2)”."


def test_a_name_that_would_break_a_reason_is_mended() -> None:
    found = of(("a, b; c: d", every_status(1)), ("e", every_status(2))).matrix
    again = of(("x.json", found), ("f", every_status(3))).matrix
    assert list(found.hosts) == ["a b c d", "e"]
    assert again.cells[host_checks.STARVED].reason == "starved on a b c d, e, f"


def test_the_worst_that_was_measured_wins_and_the_reason_names_the_hosts() -> None:
    good, bad = host(1, "node-a"), every_status(2, "node-b")
    found = of(("a.json", good), ("b.json", bad), ("c.json", every_status(3, "node-c"))).matrix
    starved = found.cells[host_checks.STARVED]
    assert (starved.status, starved.reason) == (Status.STARVED, "starved on node-b, node-c")
    assert starved.in_flight_ns == 1_190_000_250
    assert starved.kind == "starved"
    unsupported = found.cells[host_checks.UNSUPPORTED]
    assert unsupported.status is Status.OK
    assert unsupported.reason == "unsupported on node-b, node-c: the driver has no memory pools"
    # What an invalid cell saw does not count beside what a good one saw.
    invalid = found.cells[host_checks.INVALID]
    assert (invalid.status, counts(found, host_checks.INVALID)) == (Status.OK, counts(good, host_checks.INVALID))
    assert invalid.reason == "invalid on node-b, node-c: the host control spiked, see above"
    assert found.cells[host_checks.MISSING].reason == "missing on node-b, node-c"
    assert found.interrupted


def test_where_no_host_measured_the_status_that_says_most_stays() -> None:
    found = of(("a", every_status(1)), ("b", every_status(2))).matrix
    assert found.cells[host_checks.INVALID].status is Status.INVALID
    assert len(found.cells[host_checks.INVALID].repeats) == 2
    assert found.cells[host_checks.UNSUPPORTED].status is Status.UNSUPPORTED


def test_the_verdicts_are_those_of_the_host_where_they_are_worst() -> None:
    known = [(name, host(i, times={ALLOC: factor})) for i, (name, factor) in enumerate([("a", 5), ("b", 90), ("c", 9)])]
    found = of(*known).matrix
    worst = found.cells[ALLOC].worst
    assert worst is not None
    assert worst.ratio == 90
    assert worst.sentence.startswith("On b: D2D")
    again = of(("m.json", found), ("d", host(7))).matrix.cells[ALLOC].worst
    assert again == worst


@pytest.mark.parametrize("seed", range(3))
def test_the_way_of_merging_does_not_matter(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    # The rows and columns in which a cell has a status of its own.
    rows = tuple(row for row in matrices.ROWS if row.name != "d2d@secondary")
    columns = tuple(column for column in matrices.COLUMNS if column.name != "d2h-pinned-large")
    known: list[tuple[str, Matrix]] = []
    for i in range(5):
        name = dice.choice(["node-a", "node-b", None])
        made = every_status if dice.random() < 0.5 else host
        one = made(i, name, repeats=dice.randint(1, 3), calls=30, rows=rows, columns=columns)
        if dice.random() < 0.5:
            key = dice.choice(list(one.cells))
            one = one.changed(cells={k: cell for k, cell in one.cells.items() if k != key}, program=f"1.{i}")
        known.append((f"{i}.json", one))
    at_once = documents.of_check(of(*known).matrix)
    for cut in (1, 3, 4):
        for left, right in (([of(*known[:cut]).matrix], known[cut:]), (known[:cut], [of(*known[cut:]).matrix])):
            parts = [part if isinstance(part, tuple) else ("m.json", part) for part in (*left, *right)]
            path = tmp_path / f"{cut}.json"
            check_file.save(of(*parts).matrix, path, force=True)
            assert documents.of_check(check_file.load(path)) == at_once


def test_what_is_common_stays_in_the_fingerprint_and_the_rest_is_explained() -> None:
    found = of(("a", host(1)), ("b", host(2))).matrix.fingerprint
    assert found == {
        "gpu": "Made-up GPU",
        "uuid": None,
        "driver": "580.1",
        "unknown": {"uuid": "not the same on all 2 hosts"},
    }


def test_rows_and_columns_of_all_hosts_are_there() -> None:
    left, right = (
        host(1, rows=matrices.ROWS[:2]),
        host(2, rows=matrices.ROWS[1:], columns=matrices.COLUMNS[:3]),
    )
    found = of(("a", left), ("b", right)).matrix
    assert (found.rows, found.columns) == (matrices.ROWS, matrices.COLUMNS)
    assert [len(found.cells[row, "spin"].repeats) for row in ("launch", "d2d", "d2h-pinned")] == [1, 2, 1]


def test_what_does_not_belong_together_is_refused() -> None:
    one = host(1)
    others = [
        (one.changed(backend="simulated"), "a is of a real GPU and b of a simulated GPU: merge them apart"),
        (one.changed(pace_ns=100_000), "a calls every 50 µs and b every 100 µs"),
        (host(2, gpu="Other GPU"), "a is of Made-up GPU and b of Other GPU: merge them apart, or with --force"),
        (host(2, rows=(MatrixRow("d2d", "D2D", "d2d", "third", "own"),)), "different victims “d2d”"),
        (host(2, columns=(MatrixColumn("spin", "spin", ("spin", "d2d")),)), "different aggressors “spin”"),
    ]
    for other, said in others:
        with pytest.raises(CheckFileError, match=said):
            of(("a", one), ("b", other))
    with pytest.raises(CheckFileError, match="No checks to merge"):
        merge.merge([])


def test_different_gpus_merge_when_forced_and_are_told() -> None:
    found = merge.merge([("a", host(1)), ("b", host(2, gpu="Other GPU"))], force=True).matrix
    assert found.fingerprint["gpu"] is None
    # The merged check, too, is known to be of both.
    with pytest.raises(CheckFileError, match="a real GPU and c of a simulated"):
        of(("m", found), ("c", host(3).changed(backend="simulated")))
    with pytest.raises(CheckFileError, match="Other GPU"):
        of(("m.json", found), ("c", host(3)))


def test_sums_that_no_reader_takes_are_refused(tmp_path: Path) -> None:
    huge = host(1, calls=5, repeats=1, rows=matrices.ROWS[:1], columns=matrices.COLUMNS[:1])
    told = documents.of_check(huge)
    told["cells"][0]["repeats"][0]["channels"]["call"] = {"max_ns": 64, "histogram": [[64, 2**53 - 100]]}
    (tmp_path / "a.json").write_text(json.dumps(told))
    loaded = check_file.load(tmp_path / "a.json")
    with pytest.raises(CheckFileError, match=r"more than 2\*\*53"):
        of(("a", loaded), ("b", loaded))


def test_a_slow_host_is_named_with_its_cell_and_in_plain_words() -> None:
    known = [(f"node-{i}", host(i, times={ALLOC: 2.0} if i == 3 else {})) for i in range(8)]
    found = of(*known).outliers
    assert {(one.host, one.row, one.column) for one in found} == {("node-3", *ALLOC)}
    assert {(one.channel, one.quantile.percent) for one in found} >= {
        (Channel(Phase.CALL), 50),
        (Channel(Phase.WAIT), 50),
    }
    for one in found:
        assert one.ratio == pytest.approx(2.0, rel=0.3)
    first = next(one for one in found if (one.channel.phase, one.quantile.percent) == (Phase.CALL, 50))
    assert first.sentence.startswith("node-3 is slower: d2d beside host-alloc-free: call p50 is 7.")
    assert first.sentence.endswith("on the other 7 hosts (×2.0).")


def test_a_fast_host_is_named_too_and_quiet_is_called_so() -> None:
    known = [(f"node-{i}", host(i, times={("launch", "quiet"): 0.4} if i == 3 else {})) for i in range(8)]
    found = of(*known).outliers
    assert found
    assert all("node-3 is faster: launch with no aggressor: " in one.sentence for one in found)


def test_a_tail_on_one_host_is_found_at_p99_only() -> None:
    known = [(f"node-{i}", host(i, tails={ALLOC: 50.0} if i == 3 else {}, calls=1000)) for i in range(8)]
    found = of(*known).outliers
    assert {(one.host, one.row, one.column, one.quantile.percent) for one in found} == {("node-3", *ALLOC, 99)}


def test_three_hosts_are_enough_to_name_one_and_two_are_not() -> None:
    known = [(f"node-{i}", host(i, times={ALLOC: 4.0} if i == 1 else {})) for i in range(3)]
    assert {one.host for one in of(*known).outliers} == {"node-1"}
    assert of(*known[:2]).outliers == ()


def test_outliers_are_found_in_a_merged_check_that_was_read(tmp_path: Path) -> None:
    found = of(*((f"node-{i}", host(i, times={ALLOC: 3.0} if i == 1 else {})) for i in range(5)))
    check_file.save(found.matrix, tmp_path / "m.json")
    assert outliers.find(check_file.load(tmp_path / "m.json")) == found.outliers


def test_a_cell_in_which_all_hosts_differ_names_nobody() -> None:
    dice = np.random.default_rng(5)
    known = [
        (f"node-{i}", host(i, times={ALLOC: float(np.exp(dice.normal(0, 0.5)))}, rows=matrices.ROWS[:2]))
        for i in range(20)
    ]
    assert of(*known).outliers == ()


def test_few_calls_name_nobody() -> None:
    known = [(f"node-{i}", host(i, calls=4, times={ALLOC: 9.0} if i == 3 else {})) for i in range(8)]
    assert of(*known).outliers == ()


@pytest.mark.parametrize(("drift", "tail"), [(0.0, 1.0), (0.1, 8.0)])
def test_of_a_hundred_hosts_that_are_alike_none_is_named(drift: float, tail: float) -> None:
    """3 merges of 100 hosts drawn from 105, 4 cells each."""
    rows, columns = matrices.ROWS[:2], matrices.COLUMNS[:2]
    tails = {(row.name, column.name): tail for row in rows for column in columns}
    dice = random.Random(1)
    known = []
    for seed in range(105):
        alike = host(1000 + seed, drift=drift, tails=tails, rows=rows, columns=columns)
        known.append((f"node-{seed}", of((f"node-{seed}", alike)).matrix))
    assert sum(bool(of(*dice.sample(known, 100)).outliers) for _ in range(3)) == 0


@pytest.mark.parametrize(
    ("merges", "hosts", "share", "burst"),
    [(8, 100, 0.005, 4), (8, 100, 0.01, 1), (100, 6, 0.008, 4), (100, 3, 0.01, 1)],
)
def test_rare_stalls_that_every_host_has_name_nobody(merges: int, hosts: int, share: float, burst: int) -> None:
    """About one call in a hundred is 30 times slower, ``burst`` in a row: which host's p99 is in it is chance.

    The promise is one merge of a hundred at most.
    """
    dice = np.random.default_rng(3)

    def repeat(host: str) -> Repeat:
        drawn = 3000 * np.exp(dice.normal(0, 0.05) + dice.normal(0, 0.15, 1000))
        stalled = np.convolve(dice.random(1000) < share / burst, np.ones(burst))[:1000] > 0
        histogram = Histogram.of(np.where(stalled, 30 * drawn, drawn).astype(np.int64))
        return Repeat(matrices.window({matrices.CALL: histogram}, 1000, 0.05), host=host)

    names = [f"node-{i}" for i in range(hosts)]
    whole = host(1, calls=1, repeats=1).changed(hosts={name: {} for name in names})
    named = 0
    for _ in range(merges):
        keys = [(row.name, "spin") for row in matrices.ROWS]
        cells = {key: Cell(*key, status=Status.OK, repeats=tuple(map(repeat, names))) for key in keys}
        named += bool(outliers.find(whole.changed(cells=cells)))
    assert named == 0


def test_a_thousand_hosts_are_merged_with_one_check_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Their repeats are in a file.
    monkeypatch.setattr(repeat_spool, "_IN_MEMORY", 1 << 16)
    rows, columns = matrices.ROWS[:2], matrices.COLUMNS[:2]
    drawn = [host(seed, rows=rows, columns=columns, calls=200, repeats=1).cells for seed in range(7)]
    slow = host(8, times={("d2d", "spin"): 9.0}, rows=rows, columns=columns, calls=200, repeats=1).cells
    alike = host(1, rows=rows, columns=columns, calls=200, repeats=1)
    alive: list[weakref.ref[Matrix]] = []

    def checks() -> Iterator[tuple[str, Matrix]]:
        for number in range(1000):
            # Only the last one may still be in use.
            assert sum(one() is not None for one in alive) <= 1
            cells = dict(slow if number == 500 else drawn[number % len(drawn)])
            check = alike.changed(cells=cells)
            alive[:] = [*alive[-1:], weakref.ref(check)]
            yield f"node-{number}", check
            del check

    shares: list[float] = []
    found = merge.merge(checks(), progress=shares.append)
    assert len(found.matrix.hosts) == 1000
    assert counts(found.matrix, ("d2d", "spin"))[0] == 200_000
    assert [repeat.host for repeat in found.matrix.cells["d2d", "spin"].repeats] == list(found.matrix.hosts)
    assert {(one.host, one.row, one.column) for one in found.outliers} == {("node-500", "d2d", "spin")}
    assert shares == sorted(shares)
    assert max(shares) < 1


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(repeat_spool.RepeatSpool, "add", full)
    with pytest.raises(CheckFileError, match="No space left on device; set TMPDIR to a folder with more space"):
        of(("a", host(1)))


@pytest.mark.parametrize("in_memory", [1 << 30, 10])
def test_a_repeat_comes_back_from_the_spool(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat_spool, "_IN_MEMORY", in_memory)
    cells = [*host(1, calls=40).cells.values(), host_checks.starved_cell(ALLOC)]
    repeats = [replace(repeat, host=f"node-{i}") for cell in cells for i, repeat in enumerate(cell.repeats)]
    spool = repeat_spool.RepeatSpool()
    stored = spool.sequence()
    for repeat in repeats:
        stored.append(repeat)
    assert len(stored) == len(repeats)
    for found, repeat in zip((*stored[:3], *[stored[i] for i in range(3, len(stored))]), repeats, strict=True):
        assert found.host == repeat.host
        assert (found.window.iterations, found.window.duration_ns) == (
            repeat.window.iterations,
            repeat.window.duration_ns,
        )
        for one, other in (
            (found.window.channels, repeat.window.channels),
            (found.before, repeat.before),
            (found.after, repeat.after),
        ):
            assert dict(one) == dict(other)
