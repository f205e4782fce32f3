"""Programs on their way to the engine: what threads compute of them meanwhile stays behind."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest

from stallprobes.catalog import entries


@pytest.mark.parametrize("name", sorted(entries())[:8])
def test_a_program_is_sent_without_what_was_computed_of_it(name: str) -> None:
    """A thread that computes it while another one pickles the program would end that one with an error."""
    program = entries()[name].probe().program
    assert program.resources is program.resources
    assert program.channels is program.channels
    sent = pickle.loads(pickle.dumps(program))
    assert set(vars(sent)) == {field.name for field in fields(program)} < set(vars(program))
    assert sent == program
    assert sent.resources == program.resources
