"""The patterns: reported stalls with their controls and remedies, made of catalogue probes; one file per report.

Belongs here: patterns, their remedies as code, and the parser of probe names. May import: ``catalog`` and what it may
import.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from stallprobes.model import Pattern
from stallprobes.patterns import (
    default_stream,
    event_polling,
    host_callback,
    idle_wakeup,
    launch_storm,
    pageable,
    peer,
    profiler_on,
    readback,
    second_process,
    secondary,
    vmm_churn,
)

__all__ = ["patterns"]

_MODULES = (
    secondary,
    peer,
    pageable,
    readback,
    default_stream,
    event_polling,
    host_callback,
    vmm_churn,
    launch_storm,
    second_process,
    idle_wakeup,
    profiler_on,
)


@cache
def patterns() -> Mapping[str, Pattern]:
    """Every pattern by name, in the order of the reports."""
    return MappingProxyType({module.PATTERN.name: module.PATTERN for module in _MODULES})
