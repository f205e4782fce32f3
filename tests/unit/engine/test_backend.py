"""The interface of the backends: what is refused for several probes is refused at once."""

from __future__ import annotations

import pytest

from factories.host_probes import host_probe
from stallprobes.engine.backend import for_each
from stallprobes.errors import Unsupported
from stallprobes.model import Probe


def test_probes_refused_for_the_same_reason_are_named_together() -> None:
    prepared: list[str] = []
    refused = {"b": "one GPU: this needs two", "c": "no green contexts", "d": "one GPU: this needs two"}

    def prepare(probe: Probe) -> None:
        if probe.name in refused:
            raise Unsupported(refused[probe.name])
        prepared.append(probe.name)

    with pytest.raises(Unsupported, match="one GPU") as caught:
        for_each([host_probe(name) for name in "abcde"], prepare)
    assert caught.value.probes == ("b", "d")
    assert prepared == ["a", "e"]


def test_nothing_is_raised_where_nothing_is_refused() -> None:
    for_each([host_probe("a")], lambda probe: None)
