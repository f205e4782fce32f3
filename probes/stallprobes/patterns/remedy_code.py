"""Remedies as code: a few lines for each remedy of a pattern and each language, taken from programs that were measured.

``remedies/PATTERN.toml`` has the lines; ``tests/programs/remedies/package.py`` writes it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType


class CodeLanguage(StrEnum):
    """Language of the lines of a remedy. The values are those of ``--lang`` and of the settings."""

    CUDA = "cuda"
    PYTORCH = "pytorch"
    CUPY = "cupy"

    @property
    def label(self) -> str:
        """Its name for people."""
        return _LABELS[self]


# Displayed name of each language in which remedies have code.
_LABELS = {CodeLanguage.CUDA: "CUDA C++", CodeLanguage.PYTORCH: "PyTorch", CodeLanguage.CUPY: "CuPy"}
# Language of the displayed code of remedies if the user has chosen none.
DEFAULT_LANGUAGE = CodeLanguage.CUDA


@dataclass(frozen=True)
class MeasuredEffect:
    """Latency of the victim in the program of the lines, in ns: with the stall and with the remedy.

    ``victim`` is the timed call, ``machine`` the GPU with its driver. ``without_ns`` is the latency without the cause,
    where the stall is not long enough to neglect it, else 0.
    """

    victim: str
    machine: str
    before_ns: int
    after_ns: int
    without_ns: int = 0


@dataclass(frozen=True)
class RemedyCode:
    """Lines of code that apply the remedy ``variant`` of a pattern; ``effect`` is None where it was not recorded."""

    variant: str
    language: CodeLanguage
    lines: tuple[str, ...]
    effect: MeasuredEffect | None = None


@cache
def remedy_code(pattern: str) -> Mapping[CodeLanguage, tuple[RemedyCode, ...]]:
    """The code for the remedies of ``pattern`` by language, without languages that have none."""
    file = resources.files("stallprobes.patterns") / "remedies" / f"{pattern}.toml"
    if not file.is_file():
        return MappingProxyType({})
    by_language: dict[CodeLanguage, list[RemedyCode]] = {language: [] for language in CodeLanguage}
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["code"]:
        language, effect = CodeLanguage(entry["language"]), entry.get("effect")
        lines = tuple(entry["lines"].splitlines())
        measured = None
        if effect is not None:
            keys = ("before_us", "after_us", "without_us")
            times_ns = (round(effect.get(key, 0) * 1000) for key in keys)
            measured = MeasuredEffect(effect["victim"], effect["machine"], *times_ns)
        by_language[language].append(RemedyCode(entry["variant"], language, lines, measured))
    return MappingProxyType({language: tuple(codes) for language, codes in by_language.items() if codes})
