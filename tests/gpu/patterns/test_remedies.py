"""The remedies as code: each program of them runs with the stall and with the remedy, and the stall is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.remedy_programs import NotRunnable, RemedyProgram, build_all, measure, programs, regions

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all CUDA programs, compiled side by side."""
    made = tmp_path_factory.mktemp("remedies")
    build_all(made)
    return made


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.path.name)
def test_the_stall_is_gone_with_the_lines_of_each_remedy(program: RemedyProgram, folder: Path) -> None:
    try:
        result = measure(program, folder)
    except NotRunnable as reason:
        pytest.skip(str(reason))
    variants = set(regions(program.path.read_text(encoding="utf-8")))
    # Peer access, which the machine may not have, is the only remedy that a program leaves out.
    assert variants - set(result.after_us) <= {"direct"}
    assert [variant for variant in result.after_us if not result.gone(variant)] == [], result
