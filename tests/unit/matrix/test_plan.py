"""What a check measures, from names and patterns."""

from __future__ import annotations

import pytest

from stallprobes.catalog import CheckPlacement, Placement, entries
from stallprobes.catalog.host import HOST
from stallprobes.errors import UnknownName
from stallprobes.matrix.check.plan import contexts_of, plan
from stallprobes.matrix.matrix import QUIET
from stallprobes.model import MIB, Buffer, Process, Role, Space
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import parse_probe, probe_name


def test_the_usual_check_has_every_family_of_victims_and_aggressors() -> None:
    usual = plan()
    victims = {victim.probe.entry for victim in usual.victims}
    assert {
        "launch",
        "d2d",
        "d2h-pinned",
        "h2d-pinned",
        "d2h-pageable",
        "event",
        "graph-launch",
        "peer-copy",
    } <= victims
    assert {(one.row.context, one.row.stream) for one in usual.victims} >= {
        ("primary", "own"),
        ("primary", "shared"),
        ("primary", "NULL"),
        ("secondary", "own"),
        ("green", "own"),
    }
    assert len(usual.aggressor_sets) >= 24
    assert usual.columns[0].name == QUIET
    assert usual.rows[-1].name == HOST


DEFAULT_ROWS = [
    "launch",
    "d2d",
    "d2h-pinned",
    "h2d-pinned",
    "d2h-pageable",
    "event",
    "graph-launch",
    "launch/shared",
    "launch/null",
    "d2d@secondary",
    "d2h-pinned@secondary",
    "launch@green",
    "peer-copy",
    "host",
]
DEFAULT_COLUMNS = [
    "quiet",
    "spin",
    "spin-full",
    "spin@secondary",
    "spin@second-process",
    "d2h-pageable-warm",
    "d2h-pageable-warm/null",
    "d2h-pageable-fresh",
    "d2h-pinned-large",
    "h2d-pinned-large",
    "h2d-pageable-large",
    "dram",
    "l2",
    "alloc-free",
    "free-beside-kernel",
    "host-alloc-free",
    "map-unmap",
    "host-register",
    "alloc-async",
    "module-load",
    "module-first-launch",
    "graph-instantiate",
    "launch-queue-full",
    "event-block-x16/own",
    "launch-burst-x15/own",
    "stream-churn",
    "context-churn",
    "context-sync",
    "scalar-readback",
    "gated-copy/null",
    "callback-10ms",
    "peer-copy-behind-kernel",
    "nvml-poll",
]
QUICK_ROWS = ["launch", "launch/shared", "d2d", "d2h-pinned", "d2d@secondary", "host"]
QUICK_COLUMNS = [
    "quiet",
    "spin",
    "d2h-pageable-warm",
    "d2h-pageable-fresh",
    "d2h-pinned-large",
    "alloc-free",
    "free-beside-kernel",
    "host-alloc-free",
    "host-register",
    "alloc-async",
    "module-load",
    "stream-churn",
]


@pytest.mark.parametrize(
    ("quick", "rows", "columns"), [(False, DEFAULT_ROWS, DEFAULT_COLUMNS), (True, QUICK_ROWS, QUICK_COLUMNS)]
)
def test_rows_and_columns_of_the_default_check(quick: bool, rows: list[str], columns: list[str]) -> None:
    found = plan(quick=quick)
    assert [row.name for row in found.rows] == rows
    assert [column.name for column in found.columns] == columns


def test_quick_is_a_part_of_the_usual_check() -> None:
    quick, usual = plan(quick=True), plan()
    assert {row.name for row in quick.rows} < {row.name for row in usual.rows}
    assert {column.name for column in quick.columns} < {column.name for column in usual.columns}


def test_aggressors_of_the_primary_context_share_the_stream_that_victims_reach_as_shared() -> None:
    (victim,), (aggressor_set,) = (lambda p: (p.victims, p.aggressor_sets))(
        plan(["launch/shared"], ["d2h-pageable-warm"])
    )
    assert victim.row.stream == aggressor_set.probes[0].stream == "shared"


def test_names_are_taken_by_commas_too_and_each_once() -> None:
    chosen = plan(["launch,d2d", "launch"], ["spin@secondary, spin"])
    assert [victim.row.name for victim in chosen.victims] == ["launch", "d2d"]
    assert [one.column.name for one in chosen.aggressor_sets] == ["spin@secondary", "spin"]


def test_all_stands_for_the_usual_ones_also_in_a_quick_check() -> None:
    assert plan(["all"], ["spin"], quick=True).rows == plan().rows


PATTERNS = [name for name in patterns() if name != "idle-wakeup"]


def test_a_pattern_of_idle_times_is_refused_with_what_measures_it() -> None:
    with pytest.raises(UnknownName, match='use "stallscope run idle-wakeup"'):
        plan(pattern_names=["idle-wakeup"])


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_gives_its_victims_and_its_sets_of_aggressors(name: str) -> None:
    chosen = plan(pattern_names=[name])
    entries_there = {probe.entry for one in chosen.aggressor_sets for probe in one.probes}
    wanted = {
        probe.entry for variant in patterns()[name].variants for probe in variant.probes if probe.role is Role.AGGRESSOR
    }
    assert entries_there == wanted
    assert chosen.victims


def test_what_a_usual_check_copies_fits_the_memory_a_session_may_take() -> None:
    for chosen in (plan(), *(plan(pattern_names=[name]) for name in PATTERNS)):
        probes = [v.probe for v in chosen.victims] + [p for one in chosen.aggressor_sets for p in one.probes]
        total = sum(
            resource.nbytes
            for probe in probes
            for resource in probe.program.resources
            if isinstance(resource, Buffer) and resource.space is Space.DEVICE
        )
        assert total < 1024 * MIB


@pytest.mark.parametrize(
    ("victims", "aggressors", "chosen", "words"),
    [
        (["lanch"], [], [], 'did you mean "launch"'),
        (["launch@tertiary"], [], [], 'no context "tertiary"'),
        (["launch/x"], [], [], 'no stream "x"'),
        (["spin"], [], [], "is an aggressor, not a victim"),
        ([], ["launch"], [], "is a victim, not an aggressor"),
        (["host"], [], [], "every check measures the host control"),
        ([], [], ["secondary"], 'no pattern "secondary"'),
    ],
)
def test_wrong_names_are_one_sentence(victims: list[str], aggressors: list[str], chosen: list[str], words: str) -> None:
    with pytest.raises(UnknownName, match=words):
        plan(victims, aggressors, chosen)


@pytest.mark.parametrize("name", ["launch", "d2d@secondary", "launch/shared", "launch@green/null", "nvml-poll"])
def test_a_probe_says_the_name_it_was_made_by(name: str) -> None:
    assert probe_name(parse_probe(name)) == name


def test_every_entry_of_the_catalogue_can_be_named() -> None:
    assert all(parse_probe(name).entry == name for name in entries())


def test_a_column_may_be_in_the_second_process_and_is_drained_there() -> None:
    name = CheckPlacement("second-process").probe_name("spin")
    assert name == "spin@second-process"
    found = plan(["launch"], [name])
    (spin,) = found.aggressor_sets[-1].probes
    assert (spin.program.process, found.columns[-1].title) == (
        Process.SECOND,
        "spin kernel · 16 blocks · second-process",
    )
    places = contexts_of([*(one.probe for one in found.victims), spin])
    assert places == [Placement(), Placement(process=Process.SECOND)]
