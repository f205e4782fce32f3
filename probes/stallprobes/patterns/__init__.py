"""The patterns: stories told with catalogue probes. A new pattern is one file here, named in ``_FILES``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from stallprobes.model import Pattern
from stallprobes.patterns import default_stream, pageable, peer, readback, secondary

__all__ = ["patterns"]

_FILES = (secondary, peer, pageable, readback, default_stream)


@cache
def patterns() -> Mapping[str, Pattern]:
    """Every pattern by its name, in the order of the reports."""
    return MappingProxyType({file.PATTERN.name: file.PATTERN for file in _FILES})
