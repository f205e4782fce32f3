"""A comparison of two checks as a JSON document by the published schema ``stallscope.compare/2``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stallprobes.model import Source

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison, QuantileChange
    from stallprobes.matrix.comparing.sensitivity import Sensitivity
    from stallprobes.matrix.matrix import Matrix

COMPARE_SCHEMA = "stallscope.compare/2"


def document(
    comparison: Comparison,
    fail_on: Iterable[str],
    regressions: Iterable[CellChange],
    check: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``comparison`` as JSON types.

    ``regressions`` are the cells that ``fail_on`` asks for. ``check`` is the new check's own document, for a command
    that measured it.
    """
    return {
        "schema": COMPARE_SCHEMA,
        "false_alarm_rate": comparison.false_alarm_rate,
        "detectable": {str(quantile): shares(one) for quantile, one in comparison.sensitivity().items()},
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "differences": [{"key": one.key, "old": one.old, "new": one.new} for one in comparison.differences],
        "counts": {str(change): number for change, number in comparison.counts().items()},
        "fail_on": list(fail_on),
        "regressions": [{"row": cell.row, "column": cell.column} for cell in regressions],
        "cells": [_cell(cell) for cell in comparison.cells],
        "only_old": [{"row": row, "column": column} for row, column in comparison.only_old],
        "only_new": [{"row": row, "column": column} for row, column in comparison.only_new],
        "check": None if check is None else dict(check),
    }


def shares(sensitivity: Sensitivity | None) -> dict[str, float | None] | None:
    """The ratios that half and nine of ten of the phases could detect, None for no phase."""
    if sensitivity is None:
        return None
    return {
        "phases": sensitivity.phases,
        "half": _rounded(sensitivity.half),
        "nine_of_ten": _rounded(sensitivity.nine_of_ten),
    }


def _side(matrix: Matrix) -> dict[str, Any]:
    return {
        "program": matrix.program,
        "backend": matrix.backend,
        "profile": matrix.profile,
        "started_at": matrix.started_at,
        "seconds": matrix.seconds,
        "timeline": matrix.timeline,
        "interrupted": matrix.interrupted,
        "hosts": list(matrix.hosts),
        "fingerprint": dict(matrix.fingerprint),
    }


def _cell(cell: CellChange) -> dict[str, Any]:
    return {
        "row": cell.row,
        "column": cell.column,
        "change": str(cell.change),
        "newly_starved": cell.newly_starved,
        "no_longer_starved": cell.no_longer_starved,
        "note": cell.note,
        "parts": [_part(part) for part in cell.parts],
    }


def _part(part: QuantileChange) -> dict[str, Any]:
    return {
        "phase": str(part.channel.phase),
        "op": part.channel.label or None,
        "quantile": str(part.quantile),
        # A comparison is of the phases that the host measures.
        "source": str(Source.HOST),
        "old_us": _us(part.old_ns),
        "new_us": _us(part.new_ns),
        "ratio": _rounded(part.ratio),
        "detectable": _rounded(part.detectable),
        "change": str(part.change),
        "why": part.why,
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)
