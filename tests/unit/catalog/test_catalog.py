"""Entries of the catalogue, their traits and their causes."""

from __future__ import annotations

import pytest

from factories.causes import every_cause
from stallprobes.catalog import Hardware, cause, entries, kernels, time_slice_cause
from stallprobes.catalog.entry import HARDWARE_LABELS
from stallprobes.model import GREEN, Channel, Kind, Needs, Phase, Role
from stallprobes.patterns import _build, patterns
from stallprobes.patterns.naming import parse_probe, parse_probes


def test_two_entries_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ENTRIES", (*kernels.ENTRIES, kernels.ENTRIES[0]))
    entries.cache_clear()
    try:
        with pytest.raises(ValueError, match="two catalogue entries are called launch"):
            entries()
    finally:
        entries.cache_clear()


@pytest.mark.parametrize("name", list(entries()))
def test_each_place_in_the_default_check_is_one_of_its_own(name: str) -> None:
    placements = entries()[name].check
    names = [placement.probe_name(name) for placement in placements]
    assert len(set(names)) == len(names)
    assert all(probe.entry == name for one in names for probe in parse_probes(one))
    assert all(placement.context != GREEN.name or entries()[name].role is Role.VICTIM for placement in placements)


def test_a_program_that_reads_the_times_of_the_iteration_before_has_no_first_time_on_the_gpu() -> None:
    late = [
        name
        for name, entry in entries().items()
        if not all(map(entry.probe().program.measures_first, entry.probe().program.channels))
    ]
    assert late == ["scalar-on-device"]
    program = entries()["scalar-on-device"].probe().program
    assert program.measures_first(Channel(Phase.CALL, "final kernel"))


def test_every_cause_that_selects_by_hardware_selects_some_victim() -> None:
    victims = [entry for entry in entries().values() if entry.role is Role.VICTIM]
    selecting = [found for entry in entries().values() for found in entry.causes if found.uses]
    assert selecting
    for found in selecting:
        assert any(victim.uses & found.uses for victim in victims), found.why


def test_every_cause_has_a_clause_for_a_line_of_80_columns() -> None:
    for found in every_cause():
        # Beside the label, and before the cause the key of its aggressor.
        assert len(found.short) <= 64, found.short
        assert len(found.short_remedy) <= 69, found.short_remedy
        for clause in (found.short, found.short_remedy):
            assert clause
            assert not clause.endswith(".")
        assert found.phases


def test_every_kind_of_hardware_has_a_label() -> None:
    assert set(HARDWARE_LABELS) == set(Hardware)


@pytest.mark.parametrize(
    ("victim", "aggressor", "words"),
    [
        ("d2d@secondary", "spin", "one context at a time"),
        ("launch@green", "spin", None),
        ("d2h-pinned@secondary", "spin", None),
        ("h2d-pinned@secondary", "spin", "command stream"),
        ("d2h-pinned", "d2h-pinned-large", "one copy engine"),
        ("h2d-pinned", "d2h-pinned-large", "occupies the bus"),
        ("launch", "alloc-free", "locks of the context"),
        ("launch@secondary", "alloc-free", None),
        ("launch/shared", "d2h-pinned-large/shared", "runs in order"),
        ("peer-copy", "peer-copy-behind-kernel", "between two GPUs"),
        ("d2d@secondary", "module-load", "Loading code"),
        ("launch", "spin@second-process", "Each process"),
        ("h2d-pinned", "spin@second-process", "Each process"),
        ("launch@second-process", "spin", "Each process"),
        ("launch@second-process", "spin@second-process", None),
        ("d2h-pinned", "spin@second-process", None),
        ("d2h-pinned", "d2h-pinned-large@second-process", "one copy engine"),
        ("launch", "alloc-free@second-process", None),
        ("launch/null", "d2h-pageable-warm@second-process/null", "in every context"),
        ("launch", "profiler", "takes 0.2 to 0.4 ms"),
        ("d2h-pinned@secondary", "profiler-sessions", "takes 0.2 to 0.4 ms"),
        ("launch", "profiler-ended", "stays attached"),
        ("launch", "profiler-detached", "detached again"),
        ("launch", "profiler@second-process", None),
    ],
)
def test_cause_by_context_stream_and_hardware(victim: str, aggressor: str, words: str | None) -> None:
    found = cause(parse_probe(victim), parse_probe(aggressor))
    assert (found is None) if words is None else (found is not None and words in found.why)


def test_victims_of_two_contexts_share_the_graphics_engine_and_no_copy_engine() -> None:
    launch = parse_probe("launch")
    assert time_slice_cause(launch, [parse_probe("d2d@secondary")]) is not None
    assert time_slice_cause(launch, [parse_probe("d2d@green"), parse_probe("d2h-pinned@secondary")]) is None
    assert time_slice_cause(parse_probe("host"), [parse_probe("d2d@secondary")]) is None


def test_a_variant_needs_what_its_entries_and_contexts_need() -> None:
    needs = {(p.name, v.name): v.needs for p in patterns().values() for v in p.variants if v.needs != Needs()}
    assert needs == {
        ("secondary-context-d2d", "prefer-overlap"): Needs(batch_copies=True),
        ("secondary-context-d2d", "green-context"): Needs(green_contexts=True),
        ("peer-copy-behind-kernel", "staged"): Needs(gpus=2, peer_access=False),
        ("peer-copy-behind-kernel", "direct"): Needs(gpus=2, peer_access=True),
        ("peer-copy-behind-kernel", "idle-stream"): Needs(gpus=2, peer_access=False),
        ("peer-copy-behind-kernel", "host-relay-naive"): Needs(gpus=2),
        ("peer-copy-behind-kernel", "host-relay"): Needs(gpus=2),
        **{("profiler-on", name): Needs(libcupti=True) for name in ("tracing", "sessions", "ended", "detached")},
    }
    with pytest.raises(ValueError, match="peer access"):
        _build.variant("both", Kind.STALL, "", [_build.probe("peer-copy"), _build.probe("peer-copy-direct")], expect="")


@pytest.mark.parametrize("name", [name for name in entries() if name.startswith("profiler")])
def test_an_iteration_of_a_profiler_begins_and_ends_without_cupti(name: str) -> None:
    """It is soon over, and all that it enables is disabled: an iteration is never left in the middle."""
    probe = entries()[name].probe()
    enabled: set[int] = set()
    most: set[int] = set()
    attached, slept_ns = False, 0
    for op in probe.program.ops:
        assert (op.phase is None) == op.fn.startswith("native:")
        assert op.label or op.fn in ("native:lock", "native:store", "native:sleep", "native:discard_records")
        match op.fn, op.args:
            case "cupti:cuptiActivityEnable", (int(kind),):
                enabled.add(kind)
                attached = True
            case "cupti:cuptiActivityDisable", (int(kind),):
                enabled.remove(kind)
            case "cupti:cuptiFinalize", ():
                assert not enabled
                attached = False
            case "native:sleep", (int(ns),):
                slept_ns += ns
        most |= enabled
    assert most == {1, 2, 4, 10}
    assert not enabled
    assert not attached
    assert probe.period_ns == 0
    assert 0.38e9 < slept_ns < 0.42e9


def test_controls_are_aggressors() -> None:
    controls = [entry.name for entry in entries().values() if entry.control]
    assert controls == ["nvml-poll"]
    assert all(entries()[name].role is Role.AGGRESSOR for name in controls)
