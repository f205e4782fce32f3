"""A new victim is one entry in one file: it then is in the list, in a run, in the default check and in the picker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from stallprobes.catalog import CheckPlacement, Entry, Hardware, Placement, cause, entries, kernels
from stallprobes.catalog.entry import VICTIM_PERIOD_NS, synchronized
from stallprobes.catalog.kernels import launch_op
from stallprobes.matrix.check.plan import plan
from stallprobes.model import Program, Role
from stallprobes.patterns.naming import parse_probe
from stallprobes.recording.observation import ProbeSet
from stallscope.cli.main import cli
from stallscope.tui import probe_sets
from stallscope.tui.patterns.screen import listed_lines

NAME = "launch-twice"


def _launch_twice(placement: Placement, _size: int) -> Program:
    stream = placement.resolved_stream()
    return Program(ops=synchronized(stream, launch_op(stream), launch_op(stream)), context=placement.context)


LAUNCH_TWICE = Entry(
    name=NAME,
    title="two launches",
    role=Role.VICTIM,
    program=_launch_twice,
    period_ns=VICTIM_PERIOD_NS,
    uses=Hardware.GRAPHICS_ENGINE,
    check=(CheckPlacement(quick_position=5), CheckPlacement("secondary")),
    what="Two launches of an empty kernel, then cuStreamSynchronize.",
    source="a test",
)


@pytest.fixture(autouse=True)
def new_entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The family of kernels with one entry more."""
    monkeypatch.setattr(kernels, "ENTRIES", (*kernels.ENTRIES, LAUNCH_TWICE))
    entries.cache_clear()
    yield
    entries.cache_clear()


def test_list_and_explain_show_it() -> None:
    assert f"\n{NAME} " in CliRunner().invoke(cli, ["list"], catch_exceptions=False).output
    explained = CliRunner().invoke(cli, ["explain", NAME], catch_exceptions=False).output
    assert f"{NAME}, {NAME}@secondary" in explained


def test_run_measures_it() -> None:
    done = CliRunner().invoke(cli, ["run", NAME, "spin@secondary", "--sim", "--seconds", "0.5"], catch_exceptions=False)
    assert done.exit_code == 0
    assert any(NAME in line and "STALLED" in line for line in done.stdout.splitlines())


def test_the_default_check_has_it_in_both_places() -> None:
    rows = [row.name for row in plan().rows]
    assert rows[-3:] == [NAME, f"{NAME}@secondary", "host"]
    assert plan(quick=True).rows[0].name == NAME


def test_the_causes_that_concern_its_hardware_concern_it() -> None:
    found = cause(parse_probe(NAME), parse_probe("spin@secondary"))
    assert found is not None
    assert found.uses is Hardware.GRAPHICS_ENGINE


def test_the_view_of_patterns_offers_it() -> None:
    assert f"probe/{NAME}@secondary" in {line for _, line, _, _ in listed_lines()}
    base = ProbeSet(title="", probes=probe_sets.default_probes(), backend="sim")
    assert probe_sets.with_probe(base, f"{NAME}@secondary").probes[-1].name == f"{NAME}@secondary"
