"""Versions of the libraries that a process has loaded, by the names of their files and of their packages.

Nothing is asked of the process: which files it maps is read in /proc, and which packages are installed beside them in
their folder. Both are names that others chose: of them, only a number of a version gets through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from stallprobes.watch.reading.proc_files import content

# Folder in which the packages of CUDA's libraries are; their files may be elsewhere too.
_OF_CUDA = "nvidia"
# Of each library: the folder of its package, its file within that, and the name of the package.
_LIBRARIES = {
    name: (folder, re.compile(file), re.compile(rf"(?:{package})-(\d[0-9A-Za-z.+]{{0,39}})\.dist-info"))
    for name, folder, file, package in (
        ("PyTorch", "torch", r"libtorch_(?:cpu|cuda)\.so", "torch"),
        ("jaxlib", "jaxlib", r".*\.so", "jaxlib"),
        ("TensorFlow", "tensorflow", r"libtensorflow_\w+\.so[.\d]*", "tensorflow"),
        ("CuPy", "cupy", r".*\.so", r"cupy(?:_cuda\w+)?"),
        ("Triton", "triton", r"libtriton\.so", r"(?:pytorch_)?triton"),
        ("CUDA runtime", _OF_CUDA, r"libcudart\.so[.\d]*", r"nvidia_cuda_runtime(?:_cu\d+)?"),
        ("cuBLAS", _OF_CUDA, r"libcublas\.so[.\d]*", r"nvidia_cublas(?:_cu\d+)?"),
        ("cuDNN", _OF_CUDA, r"libcudnn\w*\.so[.\d]*", r"nvidia_cudnn(?:_cu\d+)?"),
        ("NCCL", _OF_CUDA, r"libnccl\.so[.\d]*", r"nvidia_nccl(?:_cu\d+)?"),
        ("NVRTC", _OF_CUDA, r"libnvrtc\.so[.\d]*", r"nvidia_cuda_nvrtc(?:_cu\d+)?"),
    )
}
# The number at the end of a file's name; one with a dot is that of a version, else of an interface.
_NUMBER = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9}){0,4})$")
# Largest number of bytes that are read of /proc/PID/maps.
_MOST_BYTES = 1 << 22
# Largest number of files that are looked at.
_MOST_FILES = 4096
# Time (ns) of a process after which it is first looked at, and the longest one between two looks, each of which is
# twice as late as the one before: the kernel holds up changes of the process's memory meanwhile, for milliseconds.
_FIRST_NS, _LONGEST_NS = 1_000_000_000, 64_000_000_000

# The names in a folder of a process.
FolderNames = Callable[[str], Iterable[str]]


class LibraryVersions:
    """The libraries of one process, which it loads one after the other: what was found once stays."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._due_ns, self._pause_ns = 0, _FIRST_NS
        self._packages: dict[str, tuple[str, ...]] = {}

    def look(self, process: Path | None, names_in: FolderNames, now_ns: int) -> None:
        """Look at the process with the folder ``process`` in /proc, if that is due at ``now_ns`` (CLOCK_MONOTONIC)."""
        self._due_ns = self._due_ns or now_ns + _FIRST_NS
        if process is None or now_ns < self._due_ns:
            return
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_NS)
        self._due_ns = now_ns + self._pause_ns
        paths = sorted(mapped_libraries(process))[:_MOST_FILES]
        self.found.update(self._versions(paths, names_in))

    def _versions(self, paths: Iterable[str], names_in: FolderNames) -> Mapping[str, str]:
        found: dict[str, dict[str, None]] = {}
        for path in paths:
            own = path.rpartition("/")[2]
            for name, (folder, file, _) in _LIBRARIES.items():
                site = path.rpartition(f"/{folder}/")[0]
                known = file.fullmatch(own) and (site or folder == _OF_CUDA)
                if known and (version := self._version(name, own, site, names_in)):
                    found.setdefault(name, {})[version] = None
        return {name: " and ".join(versions) for name, versions in found.items()}

    def _version(self, name: str, file: str, site: str, names_in: FolderNames) -> str:
        """The version of a library's ``file``, by the packages in the folder ``site`` where that does not say it; "" if
        it is not known."""
        number = _NUMBER.search(file)
        if number and "." in number[1]:
            return number[1]
        if site not in self._packages:
            names = names_in(site) if site else ()
            self._packages[site] = tuple(each for each in names if each.endswith(".dist-info"))
        packages = filter(None, map(_LIBRARIES[name][2].fullmatch, self._packages[site]))
        return next((match[1] for match in packages), number[1] if number else "")


def mapped_libraries(process: Path) -> set[str]:
    """The paths of the libraries that the process with the folder ``process`` in /proc maps; none if it has ended."""
    lines = content(process / "maps", _MOST_BYTES).splitlines()
    return {os.fsdecode(path) for path in {line[line.find(b" /") + 1 :] for line in lines if b".so" in line}}


def names_of_folder(folder: str, most: int = 1 << 14) -> Iterator[str]:
    """The names in a folder, at most so many; none of what is no folder."""
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        for _, entry in zip(range(most), entries, strict=False):
            yield entry.name
