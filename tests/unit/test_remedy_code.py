"""Remedies as code: the package has the lines of the programs that prove them, and nothing else."""

from __future__ import annotations

import ast
import tomllib

import pytest

from factories import remedy_programs
from factories.remedy_programs import (
    PACKAGED,
    ProgramResult,
    RemedyProgram,
    packaged,
    programs,
    regions,
)
from stallprobes.model import Kind
from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage, MeasuredEffect, RemedyCode, remedy_code
from stallprobes.units import duration_ns
from stallscope.report import remedy_text

# At 80 columns a line of the explanation on the screen has room for so many.
LONGEST = 66
READBACK = "scalar-readback"


def all_code() -> list[tuple[str, RemedyCode]]:
    """The code of every pattern with the pattern's name."""
    return [(name, code) for name in patterns() for codes in remedy_code(name).values() for code in codes]


def test_the_package_has_the_lines_of_the_programs() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in PACKAGED.iterdir()}
    assert files == packaged({}), "run: python tests/programs/remedies/package.py"


def test_every_program_is_one_of_a_pattern_and_has_remedies_of_it() -> None:
    assert programs()
    for program in programs():
        variants = {one.name: one.kind for one in patterns()[program.pattern].variants}
        found = regions(program.path.read_text(encoding="utf-8"))
        assert found, program.path.name
        assert {variants[name] for name in found} == {Kind.REMEDY}, program.path.name


def test_the_five_reports_have_code_in_every_language() -> None:
    reports = {
        "secondary-context-d2d", "peer-copy-behind-kernel", "pageable-d2h-vs-launch", READBACK, "default-stream-gate",
    }  # fmt: skip
    assert {name: set(remedy_code(name)) for name in reports} == {name: set(CodeLanguage) for name in reports}


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.path.name)
def test_a_program_reports_every_remedy_that_it_has(program: RemedyProgram) -> None:
    source = program.path.read_text(encoding="utf-8")
    assert all(f'"{variant}"' in source for variant in regions(source))


@pytest.mark.parametrize(("pattern", "code"), all_code(), ids=lambda value: getattr(value, "variant", value))
def test_the_lines_are_code_that_fits_on_a_small_screen(pattern: str, code: RemedyCode) -> None:
    assert code.lines
    assert max(map(len, code.lines)) <= LONGEST
    assert all(line.isascii() and line == line.rstrip() and "\t" not in line for line in code.lines)
    text = "\n".join(code.lines)
    if code.language is CodeLanguage.CUDA:
        assert code.lines[-1].split(" //")[0].endswith(";")
        assert "CHECK" not in text
    else:
        ast.parse(text)


def test_a_pattern_without_a_program_has_no_code() -> None:
    assert remedy_code("no-such-pattern") == {}


def test_regions_of_one_remedy_are_joined_and_lose_their_indentation() -> None:
    source = """
    # remedy pinned
    target = memory()
    # end
    def copy():
        # remedy pinned
        with stream:
            target.copy_()
        # end
        # remedy on-device
        use()
        # end
    """
    assert regions(source) == {
        "pinned": ("target = memory()", "", "with stream:", "    target.copy_()"),
        "on-device": ("use()",),
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [("// remedy a\n// remedy b\n// end", "line 2: a region begins in another one"), ("# remedy a\n", "no end")],
)
def test_a_wrong_region_is_an_error(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        regions(source)


def test_latencies_are_written_beside_the_lines_that_were_measured() -> None:
    program = next(one for one in programs() if (one.pattern, one.language) == (READBACK, CodeLanguage.PYTORCH))
    result = ProgramResult('reading "it"', 5003.25, {"pinned": 12.5}, 11.5)
    written = packaged({program.path: result}, "A GPU, driver 1.2")[READBACK]
    effects = {
        (one["language"], one["variant"]): one["effect"]
        for one in tomllib.loads(written)["code"]
        if "effect" in one and one["language"] == CodeLanguage.PYTORCH
    }
    assert effects[CodeLanguage.PYTORCH, "pinned"] == {
        "victim": 'reading "it"', "machine": "A GPU, driver 1.2", "before_us": 5003.25, "after_us": 12.5,
        "without_us": 11.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("after_us", "kept"), [({"pinned": 4000.0}, {"on-device"}), ({}, {"pinned", "on-device"}), (None, set())]
)
def test_lines_that_were_measured_and_help_no_more_lose_their_latency(
    after_us: dict[str, float] | None, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = MeasuredEffect("the launch", "A GPU, driver 1.1", 5_000_000, 10_000)
    monkeypatch.setattr(remedy_programs, "_kept_effect", lambda *_: known)
    program = next(one for one in programs() if (one.pattern, one.language) == (READBACK, CodeLanguage.CUPY))
    result = None if after_us is None else ProgramResult("the launch", 5000.0, after_us)
    codes = tomllib.loads(packaged({program.path: result}, "A GPU, driver 1.2")[READBACK])["code"]
    with_effect = {(one["language"], one["variant"]) for one in codes if "effect" in one}
    expected = {(language, variant) for language in ("cuda", "pytorch") for variant in ("pinned", "on-device")}
    assert with_effect == expected | {("cupy", variant) for variant in kept}


@pytest.mark.parametrize(
    ("after_us", "without_us", "gone"),
    [
        (1000.0, 0.0, True), (1000.1, 0.0, False), (6000.0, 0.0, False),
        (4200.0, 4000.0, True), (4200.1, 4000.0, False), (3900.0, 4000.0, True),
    ],
)  # fmt: skip
def test_a_stall_is_gone_when_a_fifth_of_it_is_left_at_most(after_us: float, without_us: float, gone: bool) -> None:
    assert ProgramResult("the launch", 5000.0, {"pinned": after_us}, without_us).gone("pinned") is gone


def test_every_measured_remedy_ended_its_stall() -> None:
    for pattern, code in all_code():
        if code.effect is not None:
            found = code.effect
            result = ProgramResult(found.victim, found.before_ns, {code.variant: found.after_ns}, found.without_ns)
            assert result.gone(code.variant), (pattern, code.language, code.variant)
            sentence = remedy_text.effect(code)
            assert found.machine in sentence
            assert duration_ns(found.after_ns) in sentence
            assert (f"without the cause {duration_ns(found.without_ns)}" in sentence) is (found.without_ns > 0)
