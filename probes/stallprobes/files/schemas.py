"""The published JSON Schemas, each derived from the type of its document."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

# Type of each document, by the name of its schema.
_TYPES = {
    "stallscope.run/3": "stallprobes.measurement.result:RunResult",
    "stallscope.check/3": "stallprobes.matrix.document:WholeCheck",
    "stallscope.compare/3": "stallprobes.matrix.comparing.comparison:CompareDocument",
    "stallscope.reference/2": "stallprobes.matrix.reference:Reference",
    "stallscope.doctor/1": "stallprobes.doctor:Diagnosis",
    "stallscope.calibration/1": "stallprobes.machine.gpu_reach:Calibration",
    "stallscope.watch/3": "stallprobes.watch.attribution.findings:WatchFindings",
    "stallscope.watch-compare/1": "stallprobes.watch.comparing.comparison:RunsComparison",
    "stallscope.processes/2": "stallprobes.machine.gpu_processes:ProcessesDocument",
}


def names() -> Collection[str]:
    """The names of all schemas."""
    return _TYPES.keys()


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema called ``name``, such as ``stallscope.run/3``. Raises KeyError for an unknown name."""
    from stallprobes.files import codec

    module, _, kind = _TYPES[name].partition(":")
    derived = codec.schema(getattr(import_module(module), kind))
    for kind_schema in derived["$defs"].values():
        members = kind_schema.get("properties", {})
        # What is written has these too. A member that may be missing has no default there.
        required = [*kind_schema.get("required", ()), *(key for key, value in members.items() if "default" in value)]
        if required:
            kind_schema["required"] = [key for key in members if key in required]
    own = derived["$defs"].pop(derived["$ref"].removeprefix("#/$defs/"))
    document, _, version = name.removeprefix("stallscope.").partition("/")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stallscope:{document}:{version}",
        **own,
        "title": name,
        "$defs": derived["$defs"],
    }
