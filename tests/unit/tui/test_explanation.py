"""The remedies as code in an explanation: of which patterns, in which order, and the next language."""

from __future__ import annotations

import pytest

from factories.remedy_programs import programs
from stallprobes.model import Kind, Probe, Variant
from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage, remedy_code
from stallprobes.recording.observation import ProbeSet
from stallscope.report import remedy_text
from stallscope.tui.common import explain
from stallscope.tui.common.explain import explanation, next_language
from stallscope.tui.probe_sets import default_probes, stalls_of


def pattern_set(name: str, variant: Variant) -> ProbeSet:
    return ProbeSet(title=name, probes=variant.probes, backend="sim", pattern=name, variant=variant.name)


def probe(name: str) -> Probe:
    return next(one for one in default_probes() if one.name == name)


@pytest.mark.parametrize("name", sorted({program.pattern for program in programs()}))
def test_the_remedy_of_the_current_variant_is_the_first(name: str) -> None:
    for variant in (one for one in patterns()[name].variants if one.kind is Kind.REMEDY):
        probe_set = pattern_set(name, variant)
        for language, codes in remedy_code(name).items():
            text = str(explanation(probe_set, variant.probes[0], (), True, language))
            places = {
                code.variant: text.index("".join(f"  {line}".rstrip() + "\n" for line in code.lines)) for code in codes
            }
            if variant.name in places:
                assert min(places, key=lambda one: places[one]) == variant.name
                assert text.count("(current)\n  ") == 1
            else:
                assert "(current)\n  " not in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("d2d@secondary", ["secondary-context-d2d"]),
        ("launch", ["pageable-d2h-vs-launch"]),
        ("spin", ["secondary-context-d2d"]),
        ("d2h-pinned", []),
        ("host", []),
    ],
)
def test_probes_of_no_pattern_have_the_code_of_their_stalls(name: str, expected: list[str]) -> None:
    probe_set = ProbeSet(title="default", probes=default_probes(), backend="sim")
    assert [pattern.name for pattern in stalls_of(probe_set, probe(name))] == expected
    text = str(explanation(probe_set, probe(name), (), True, CodeLanguage.PYTORCH))
    assert ("Remedy in PyTorch" in text) is bool(expected)


def test_the_next_language_is_one_with_code(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [patterns()["scalar-readback"]]
    chosen = [CodeLanguage.CUDA]
    for _ in CodeLanguage:
        chosen.append(next_language(shown, chosen[-1]))
    assert chosen == [*CodeLanguage, CodeLanguage.CUDA]
    monkeypatch.setattr(explain, "remedy_code", lambda _name: {CodeLanguage.PYTORCH: ()})
    assert next_language(shown, CodeLanguage.CUDA) is CodeLanguage.PYTORCH
    assert next_language(shown, CodeLanguage.PYTORCH) is CodeLanguage.PYTORCH
    assert next_language([], CodeLanguage.CUPY) is CodeLanguage.CUPY


def test_a_pattern_without_code_in_the_language_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "scalar-readback"
    found = {CodeLanguage.PYTORCH: remedy_code(name)[CodeLanguage.PYTORCH]}
    monkeypatch.setattr(remedy_text, "remedy_code", lambda _name: found)
    variant = patterns()[name].variants[1]
    text = str(explanation(pattern_set(name, variant), variant.probes[0], (), True, CodeLanguage.CUDA))
    assert "This pattern has no code in CUDA C++." in text
    monkeypatch.setattr(remedy_text, "remedy_code", lambda _name: {})
    text = str(explanation(pattern_set(name, variant), variant.probes[0], (), True, CodeLanguage.CUDA))
    assert "Remedy in" not in text
