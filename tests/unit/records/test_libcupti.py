"""Where libcupti is looked for, and which one is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.records.libcupti import Cupti, LibraryFile, found_libraries, matching
from stallprobes.records.timeline import TimelineProblem, TimelineUnavailable


def touch(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def test_a_loaded_library_comes_before_packages_and_toolkits(tmp_path: Path) -> None:
    loaded = touch(tmp_path / "torch" / "libcupti.so.13")
    package = touch(tmp_path / "site" / "nvidia" / "cu13" / "lib" / "libcupti.so.13")
    toolkit = touch(tmp_path / "cuda-13.0" / "extras" / "CUPTI" / "lib64" / "libcupti.so.2025.3.1")
    maps = f"7f00-7f01 r-xp 00000000 08:01 42                         {loaded}\n" * 2
    found = found_libraries(maps, [str(tmp_path / "site")], {"CUDA_HOME": str(tmp_path / "cuda-13.0")})
    assert [library.path for library in found[:3]] == [loaded, package, toolkit]
    assert [library.major for library in found[:3]] == [13, 13, 13]


def test_the_drivers_major_version_decides(tmp_path: Path) -> None:
    older = touch(tmp_path / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12")
    newer = touch(tmp_path / "nvidia" / "cu13" / "lib" / "libcupti.so.13")
    found = found_libraries("", [str(tmp_path)], {})
    assert matching(12_080, found)[0].path == older
    assert matching(13_000, found)[0].path == newer


@pytest.mark.parametrize(
    ("major", "problem", "package"),
    [
        (13, TimelineProblem.LIBRARY_TOO_NEW, "nvidia-cuda-cupti-cu12"),
        (11, TimelineProblem.LIBRARY_TOO_OLD, "nvidia-cuda-cupti-cu12"),
    ],
)
def test_a_library_of_another_major_version_is_refused(major: int, problem: TimelineProblem, package: str) -> None:
    with pytest.raises(TimelineUnavailable) as error:
        matching(12_040, [LibraryFile(f"/x/libcupti.so.{major}", major, "toolkit")])
    assert error.value.status.problem is problem
    assert package in error.value.status.do


def test_no_library_says_what_to_install() -> None:
    with pytest.raises(TimelineUnavailable) as error:
        matching(13_000, [])
    assert (
        error.value.status.sentence
        == "the timeline is not available: libcupti was not found; pip install nvidia-cuda-cupti"
    )


def test_a_file_that_is_no_library_is_a_problem_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "libcupti.so.13"
    path.write_bytes(b"no ELF file")
    with pytest.raises(TimelineUnavailable, match="cannot be loaded"):
        Cupti(LibraryFile(str(path), 13, "package"))
