"""Documents against their published schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema

from stallprobes.files import schemas
from stallprobes.matrix.document import lazy_document
from stallprobes.matrix.matrix import Matrix


def validate(document: object, name: str) -> None:
    """Raise jsonschema.ValidationError unless ``document`` conforms to the published schema ``name``."""
    validator(name).validate(document)


def valid(text: str, name: str) -> dict[str, Any]:
    """The JSON document ``text``, which conforms to the published schema ``name``."""
    document: dict[str, Any] = json.loads(text)
    validate(document, name)
    return document


def of_check(matrix: Matrix) -> dict[str, Any]:
    """The JSON document of ``matrix``."""
    lazy = lazy_document(matrix)
    return {**lazy, "cells": list(lazy["cells"])}


@cache
def validator(name: str) -> Any:
    """A validator of the published schema ``name``.

    It gives the same results as jsonschema's own. A list within a list that is equal to one found valid by the same
    schema is not validated again: a check holds tens of thousands of pairs of bucket and count, and few are different.
    """
    own_items = jsonschema.Draft202012Validator.VALIDATORS["items"]
    known: set[tuple[int, str]] = set()

    def items(validator: Any, rest: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        lists = isinstance(instance, list) and "prefixItems" not in schema and isinstance(rest, dict)
        if not lists or not all(isinstance(item, list) for item in instance):
            yield from own_items(validator, rest, instance, schema)
            return
        for number, item in enumerate(instance):
            key = (id(rest), repr(item))
            if key not in known:
                errors = list(validator.descend(item, rest, path=number))
                yield from errors
                if not errors:
                    known.add(key)

    chosen = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"items": items})
    return chosen(schemas.schema(name))
