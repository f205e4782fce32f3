"""The published JSON Schemas, each derived from the type of its document."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# The type of each document, by the name of its schema.
_TYPES = {
    "stallscope.run/3": "stallprobes.measurement.document:RunDocument",
    "stallscope.check/2": "stallprobes.matrix.document:WholeCheck",
    "stallscope.compare/2": "stallprobes.matrix.comparing.compare_document:CompareDocument",
    "stallscope.reference/1": "stallprobes.matrix.reference_document:ReferenceDocument",
    "stallscope.doctor/1": "stallprobes.doctor:DoctorDocument",
    "stallscope.watch/3": "stallprobes.watch.attribution.findings:WatchFindings",
    "stallscope.processes/1": "stallprobes.machine.gpu_process_document:ProcessesDocument",
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema called ``name``, such as ``stallscope.run/3``. Raises KeyError for an unknown name."""
    from stallprobes.files import codec

    module, _, kind = _TYPES[name].partition(":")
    derived = codec.schema(getattr(import_module(module), kind))
    own = derived["$defs"].pop(derived["$ref"].removeprefix("#/$defs/"))
    document, _, version = name.removeprefix("stallscope.").partition("/")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stallscope:{document}:{version}",
        **own,
        "title": name,
        "$defs": derived["$defs"],
    }
