"""Names of probes in several threads: in a run, in a check, and in the default check by one line of an entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stallprobes.catalog import CheckPlacement, entries, launching, size_of
from stallprobes.errors import UnknownName
from stallprobes.matrix.check.plan import plan
from stallprobes.measurement.plan import selection
from stallprobes.model import Pattern, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import MOST_THREADS, by_name, entry_name, parse_probe, parse_probes
from stallprobes.recording.observation import ProbeSet
from stallscope.tui.probe_sets import default_probes, with_probe


@pytest.mark.parametrize(
    ("name", "threads", "place"),
    [
        ("launch-burst-x4", 4, ("primary", "own")),
        ("spin-x2@secondary", 2, ("secondary", "own")),
        ("launch-burst-x16/shared", 16, ("primary", "shared")),
        ("launch-burst-x3@green/null", 3, ("green", "NULL")),
    ],
)
def test_a_number_of_threads_is_that_many_probes_of_one_entry(name: str, threads: int, place: tuple[str, str]) -> None:
    found = parse_probes(name)
    assert [one.name for one in found] == [f"{name} {number}" for number in range(1, threads + 1)]
    assert {(one.context, one.stream) for one in found} == {place}
    assert len({one.title for one in found}) == 1
    assert entry_name(name) == found[0].entry


@pytest.mark.parametrize("pattern", [*patterns().values()], ids=lambda pattern: pattern.name)
def test_a_probe_of_a_pattern_is_called_by_the_name_that_selects_it(pattern: Pattern) -> None:
    for probe in (probe for variant in pattern.variants for probe in variant.probes):
        found = parse_probes(probe.name.rpartition(" ")[0] or probe.name, size=size_of(probe))
        assert {one.name: one.program for one in found}[probe.name] == probe.program


def test_the_probes_at_startup_are_called_by_the_names_that_select_them() -> None:
    for probe in default_probes():
        assert parse_probe(probe.name) == probe


def test_a_second_probe_of_a_name_has_a_number() -> None:
    base = ProbeSet(title="", probes=default_probes(), backend="sim")
    assert with_probe(base, "d2d@secondary").probes[-1].name == "d2d@secondary 2"
    assert with_probe(base, "d2d").probes[-1].name == "d2d"


def test_a_name_without_a_number_is_one_probe() -> None:
    for name in entries():
        assert parse_probes(name) == (parse_probe(name),)
        assert entry_name(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("launch-x4", '"launch" is no aggressor'),
        ("host-x2", '"host" is no aggressor'),
        ("spin-x1", "1 is no number of threads: 2 to 16 are possible"),
        (f"spin-x{MOST_THREADS + 1}", "17 is no number of threads"),
        ("spinn-x4", 'did you mean "spin"'),
        ("launch-storm/x16", '"launch-storm/x16": launch-storm is a pattern, not a probe'),
        ("launch-storm@secondary", "with --variant one of its variants"),
        ("spin-x4@nowhere", 'no context "nowhere"'),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, words: str) -> None:
    with pytest.raises(UnknownName, match=words):
        parse_probes(name)


@pytest.mark.parametrize("name", ["launch-burst-x16", "spin-x2@secondary", "launch-burst-x3@green/null", "spin"])
def test_probes_say_the_name_that_they_were_made_by(name: str) -> None:
    assert list(by_name(parse_probes(name))) == [name]


def test_a_run_takes_several_threads() -> None:
    ((_, variant),) = selection(["launch", "launch-burst-x4", "spin"])
    assert [probe.name for probe in variant.probes] == [
        "launch",
        *(f"launch-burst-x4 {number}" for number in range(1, 5)),
        "spin",
        "host",
    ]


def test_a_check_has_one_column_for_all_threads() -> None:
    found = plan(["launch"], ["launch-burst-x16", "spin-x2/shared"])
    storm, spin = found.aggressor_sets
    assert (storm.column.name, storm.column.aggressors) == ("launch-burst-x16/own", ("launch-burst-x16/own",))
    assert storm.column.title == "launches in bursts · 16 threads · own stream"
    assert len({probe.name for probe in storm.probes}) == 16
    assert (spin.column.name, len(spin.probes)) == ("spin-x2", 2)


@pytest.mark.parametrize("name", [name for name in patterns() if name != "idle-wakeup"])
def test_the_aggressors_of_a_pattern_have_names_of_their_own_in_a_check(name: str) -> None:
    for one in plan(pattern_names=[name]).aggressor_sets:
        assert len({probe.name for probe in one.probes}) == len(one.probes)
        wanted = {probe.entry for probe in one.probes}
        assert {entry_name(each) for each in one.column.aggressors} == wanted


def columns_with(placement: CheckPlacement) -> list[str]:
    return [one.column.name for one in plan().aggressor_sets if one.column.name.startswith("launch-burst")]


@pytest.fixture
def storm_in_check(monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckPlacement]:
    """The entry launch-burst with a place in the default check."""
    placement = CheckPlacement(stream="own", position=5, threads=16)
    storm, *others = launching.ENTRIES
    monkeypatch.setattr(launching, "ENTRIES", (replace(storm, check=(placement,)), *others))
    entries.cache_clear()
    yield placement
    entries.cache_clear()


def test_one_line_puts_several_threads_into_the_default_check(storm_in_check: CheckPlacement) -> None:
    assert columns_with(storm_in_check) == ["launch-burst-x16/own"]
    assert len(plan().aggressor_sets[0].probes) == 16


def test_every_thread_has_a_stream_of_its_own_unless_it_is_shared() -> None:
    def streams(probes: tuple[Probe, ...]) -> set[bool]:
        return {getattr(resource, "shared", False) for one in probes for resource in one.program.resources}

    assert parse_probes("launch-burst-x2")[0].role is Role.AGGRESSOR
    assert streams(parse_probes("launch-burst-x2")) == {False}
    assert streams(parse_probes("launch-burst-x2/shared")) == {False, True}


@pytest.mark.parametrize("name", ["launch@", "launch/", "launch@primary/", "launch@/own"])
def test_an_empty_context_or_stream_is_refused(name: str) -> None:
    with pytest.raises(UnknownName, match=r"there is no (context|stream)"):
        parse_probe(name)
