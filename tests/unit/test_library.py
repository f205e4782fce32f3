"""The public API of stallprobes: what a program can use without the command line, and what importing it costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stallprobes
from factories.loaded_modules import loaded_modules
from factories.virtual_session import virtual_sessions
from stallprobes.matrix import check_file

ROOT = Path(__file__).parents[2]


def test_importing_the_package_loads_none_of_its_modules() -> None:
    loaded, _ = loaded_modules("import stallprobes", {"PYTHONPATH": str(ROOT / "probes")})
    assert "stallprobes" in loaded
    assert [name for name in loaded if name.startswith("stallprobes.")] == []
    assert not {"numpy", "cuda", "simpy"} & loaded


@pytest.mark.parametrize("name", stallprobes.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(stallprobes, name).__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        stallprobes.nothing  # noqa: B018


@pytest.mark.parametrize(
    "function",
    [
        stallprobes.run,
        stallprobes.check,
        stallprobes.compare,
        stallprobes.unusual,
        stallprobes.load,
        stallprobes.watched,
    ],
)
def test_every_argument_and_result_of_a_public_function_has_a_type(function: object) -> None:
    names = set(function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount])  # type: ignore[attr-defined]
    assert set(function.__annotations__) == names | {"return"}


def examples(path: Path) -> list[str]:
    """The Python blocks of a Markdown file."""
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_library_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    document = ROOT / "probes" / "README.md"
    runnable = [example for example in examples(document) if "backend=" in example]
    assert runnable
    with virtual_sessions():
        for example in runnable:
            exec(compile(example, str(document), "exec"), {})
            assert capsys.readouterr().out


def test_a_run_on_the_simulated_gpu_has_the_reported_stall() -> None:
    result = stallprobes.run("secondary-context-d2d", variants=["kernel-other-context"], seconds=0.5, backend="sim")
    (variant,) = result.variants
    kinds = {verdict.kind for verdict in variant.verdicts}
    assert stallprobes.VerdictKind.STALLED in kinds


def test_checks_are_measured_saved_loaded_and_compared(tmp_path: Path) -> None:
    matrix = stallprobes.check(victims=["launch"], aggressors=["spin"], backend="sim")
    check_file.save(matrix, tmp_path / "check.json")
    assert stallprobes.load(tmp_path / "check.json").rows == matrix.rows
    comparison = stallprobes.compare(tmp_path / "check.json", matrix)
    assert {cell.change.value for cell in comparison.cells} == {"same"}
