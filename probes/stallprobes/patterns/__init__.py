"""The patterns: reported stalls with their controls and remedies, made of catalogue probes; one file per report.

Belongs here: patterns, their remedies as code, and the parser of probe names. May import: ``catalog`` and what it may
import.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from stallprobes.model import Pattern

__all__ = ["patterns"]

# Names of the modules with the patterns, in the order of the reports.
_MODULES = (
    "secondary",
    "peer",
    "pageable",
    "readback",
    "default_stream",
    "event_polling",
    "host_callback",
    "vmm_churn",
    "launch_storm",
    "second_process",
    "idle_wakeup",
    "profiler_on",
)


@cache
def patterns() -> Mapping[str, Pattern]:
    """Every pattern by name, in the order of the reports."""
    modules = (import_module(f"{__name__}.{name}") for name in _MODULES)
    return MappingProxyType({module.PATTERN.name: module.PATTERN for module in modules})
