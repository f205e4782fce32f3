"""The published JSON Schemas, each shipped beside the package that writes its documents."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

# Name of the document, as in ``stallscope.NAME/VERSION``, and the package that holds its schema.
_PACKAGES = {
    "run": "stallprobes.measurement",
    "check": "stallprobes.matrix",
    "compare": "stallprobes.matrix",
    "reference": "stallprobes.matrix",
    "doctor": "stallprobes",
    "replay": "stallprobes.live",
    "demo": "stallprobes.demo",
    "watch": "stallprobes.watch",
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema called ``name``, such as ``stallscope.run/2``. Raises KeyError for an unknown name."""
    document, _, version = name.removeprefix("stallscope.").partition("/")
    path = resources.files(_PACKAGES[document]) / f"{document}-{version}.json"
    if not path.is_file():
        raise KeyError(name)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
