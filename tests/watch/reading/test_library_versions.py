"""Versions of a process's libraries: by the names of files and packages, and nothing else of these names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallprobes.watch.reading.library_versions import LibraryVersions, mapped_libraries, names_of_folder
from stallprobes.watch.reading.source import FolderSource

SECOND = 1_000_000_000
PACKAGES = (
    "torch-2.9.0+cu130",
    "nvidia_cudnn_cu13-9.13.0.50",
    "nvidia_cuda_runtime-13.0.96",
    "jaxlib-0.8.0",
    "torch_x-7",
)


def looked(tmp_path: Path, *files: str, names: tuple[str, ...] = PACKAGES) -> LibraryVersions:
    """What is found of a process that maps files of a folder with packages, or others."""
    (tmp_path / "maps").write_text(
        "".join(f"7f0000000000-7f0000001000 r-xp 00000000 fe:00 17 {' ' * 20}{file}\n" for file in files)
    )
    versions = LibraryVersions()
    for now_ns in (SECOND, 3 * SECOND):
        versions.look(tmp_path, lambda folder: [f"{name}.dist-info" for name in names if folder == "/site"], now_ns)
    return versions


def test_versions_are_those_of_files_and_of_packages_beside_them(tmp_path: Path) -> None:
    found = looked(
        tmp_path,
        "/site/torch/lib/libtorch_cuda.so",
        "/site/torch/lib/libtorch_cpu.so",
        "/site/nvidia/cudnn/lib/libcudnn_graph.so.9",
        "/site/nvidia/cu13/lib/libcudart.so.13",
        "/site/jaxlib/libjax_common.so",
        "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublas.so.13.1.0.3",
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
    ).found
    assert found == {
        "PyTorch": "2.9.0+cu130",
        "cuDNN": "9.13.0.50",
        "CUDA runtime": "13.0.96",
        "jaxlib": "0.8.0",
        "cuBLAS": "13.1.0.3",
        "NCCL": "2",
    }


@pytest.mark.parametrize(
    "name", ["torch-2.9\x1b[31m", "torch-2.9.0 (deleted)", f"torch-{'2' * 41}", "torch-", "xtorch-2.9", "torch-two"]
)
def test_nothing_but_a_version_gets_through(tmp_path: Path, name: str) -> None:
    assert looked(tmp_path, "/site/torch/lib/libtorch_cuda.so", names=(name,)).found == {}


def test_libraries_that_are_loaded_later_are_found(tmp_path: Path) -> None:
    versions = looked(tmp_path, "/opt/libcudnn.so.9.1.2")
    (tmp_path / "maps").write_text("7f0000000000-7f0000001000 r-xp 0 fe:00 1 /opt/libnccl.so.2.27.5\n")
    versions.look(tmp_path, names_of_folder, 4 * SECOND)
    assert versions.found == {"cuDNN": "9.1.2"}
    versions.look(tmp_path, names_of_folder, 6 * SECOND)
    assert versions.found == {"cuDNN": "9.1.2", "NCCL": "2.27.5"}


def test_a_process_is_read_as_the_system_lists_it(tmp_path: Path) -> None:
    assert any("/libc" in path for path in mapped_libraries(Path("/proc/self")))
    assert mapped_libraries(tmp_path) == set()
    assert list(names_of_folder(str(tmp_path / "none"))) == []
    (tmp_path / "torch-2.9.dist-info").mkdir()
    assert list(FolderSource(tmp_path).names_in(os.getpid(), str(tmp_path))) == ["torch-2.9.dist-info"]


def test_names_in_a_process_that_has_ended_are_not_used_here(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as program:
        pass
    assert list(FolderSource(tmp_path).names_in(program.pid, "/")) == []
