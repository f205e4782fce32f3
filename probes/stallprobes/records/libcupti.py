"""libcupti: where it is, and the collector's calls to it.

The compiled collector calls three functions by address; the others are called through ctypes, which releases the GIL.
Standard library only, so that a diagnosis can look for the library without NumPy.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stallprobes.records.timeline import TimelineProblem, TimelineUnavailable

# File name of a libcupti, with its version.
_SONAME = re.compile(r"libcupti\.so(?:\.(\d+)(?:\.(\d+))*)?$")
# Number that ``cuptiGetVersion`` returns for CUDA 12.0. An older libcupti is not used.
_OLDEST_VERSION = 18
# Python package that contains libcupti, by the major version of CUDA.
_PACKAGES = {12: "nvidia-cuda-cupti-cu12", 13: "nvidia-cuda-cupti"}
# Folders with libcupti in a CUDA toolkit.
_TOOLKIT_FOLDERS = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
# Folders with CUDA toolkits.
_TOOLKIT_ROOTS = ("/usr/local", "/opt/nvidia", "/opt")

# Result code of CUPTI (CUptiResult) for a function or a GPU that this libcupti does not support.
NOT_COMPATIBLE = 14
# Result code of CUPTI when it is not initialised.
NOT_INITIALIZED = 15
# Result code of CUPTI when another profiler already uses it.
TAKEN = 39

# Versions of libcupti as ``cuptiGetVersion`` returns them. _CUDA_13: the version in CUDA 13.0. _CONTEXT_SWITCHES: the
# first version that records context switches, in CUDA 13.1.
_CUDA_13, _CONTEXT_SWITCHES = 130_000, 130_100

# First version of libcupti that stallscope detaches (the value of ``cuptiGetVersion`` in CUDA 12.6). Detaching an older
# libcupti can crash a program that uses graphs.
_DETACHABLE = 24
# CUPTI's number of the callback domain of driver functions (CUPTI_CB_DOMAIN_DRIVER_API).
_DRIVER_DOMAIN = 1
# CUPTI's number of cuDriverGetVersion, a driver function that waits for nothing. To detach CUPTI, stallscope enables a
# callback for this function and calls the function. CUPTI can be detached inside the callback.
_DRIVER_GET_VERSION = 2
# Value for cuptiSetThreadIdType that makes CUPTI's records contain the thread ids of the operating system.
_THREAD_ID_SYSTEM = 1
# Flag of cuptiActivityFlushAll that makes CUPTI also return buffers with incomplete records.
FLUSH_FORCED = 1


@dataclass(frozen=True)
class LibraryFile:
    """A libcupti: its path, its CUDA major version (None if the name does not say), and where it was found."""

    path: str
    major: int | None
    origin: str


def found_libraries(
    maps: str | None = None, folders: Iterable[str] | None = None, environment: dict[str, str] | None = None
) -> list[LibraryFile]:
    """All libraries, in the order in which they are tried: loaded ones, of Python packages, of CUDA toolkits.

    ``maps`` is the text of /proc/self/maps, ``folders`` the folders of Python packages, ``environment`` the variables;
    each is by default this process's.
    """
    maps = _own_maps() if maps is None else maps
    folders = sys.path if folders is None else folders
    environment = dict(os.environ) if environment is None else environment
    paths: dict[str, str] = {}
    for path in (line.split(maxsplit=5)[5].strip() for line in maps.splitlines() if "/libcupti.so" in line):
        paths.setdefault(path, "loaded in this process")
    for path in _in_packages(folders):
        paths.setdefault(path, "Python package")
    for path in _in_toolkits(environment):
        paths.setdefault(path, "CUDA toolkit")
    seen: set[str] = set()
    libraries = []
    for path, origin in paths.items():
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            libraries.append(LibraryFile(path, _major(path, real), origin))
    return libraries


def matching(driver_version: int, libraries: Iterable[LibraryFile]) -> list[LibraryFile]:
    """The libraries that match the driver's CUDA major version (``driver_version``: 13000 for 13.0), in their order.

    Raises TimelineUnavailable if there is none.
    """
    wanted = driver_version // 1000
    libraries = list(libraries)
    fitting = [library for library in libraries if library.major in (wanted, None)]
    if fitting:
        return fitting
    install = f"pip install {_package(wanted)}"
    if not libraries:
        raise TimelineUnavailable(TimelineProblem.NO_LIBRARY, "libcupti was not found", install)
    other = libraries[0]
    newer = (other.major or 0) > wanted
    problem = TimelineProblem.LIBRARY_TOO_NEW if newer else TimelineProblem.LIBRARY_TOO_OLD
    sentence = f"libcupti of CUDA {other.major} is too {'new' if newer else 'old'} for a driver of CUDA {wanted}"
    raise TimelineUnavailable(problem, sentence, install, library=other.path)


def not_started(detail: str) -> str:
    """Words for a library without a version; ``detail`` names the library, or the code that it returned."""
    return f"libcupti does not start with this driver ({detail})"


def without_context_switches(version: int) -> tuple[str, str]:
    """Why a library of this version records no context switches, and what to do; "" and "" if it may record them."""
    if version >= _CONTEXT_SWITCHES:
        return "", ""
    if version >= _CUDA_13:
        return "no context switches: libcupti is older than 13.1", "pip install --upgrade nvidia-cuda-cupti"
    return "no context switches: they need a driver for CUDA 13", ""


def _package(major: int | None) -> str:
    return _PACKAGES.get(major or 0, _PACKAGES[max(_PACKAGES)])


class Cupti:
    """A loaded libcupti. ``version`` is that of ``cuptiGetVersion``, ``path`` the file.

    Every call returns CUPTI's code, 0 for success, except where it says otherwise.
    """

    def __init__(self, library: LibraryFile) -> None:
        """Load the library. Raises TimelineUnavailable if that fails or the library is older than CUDA 12.0."""
        self.path = library.path
        try:
            self._library = ctypes.CDLL(library.path)
        except OSError as error:
            raise TimelineUnavailable(
                TimelineProblem.NO_LIBRARY, f"libcupti cannot be loaded: {error}", "reinstall it", library.path
            ) from error
        version = ctypes.c_uint32(0)
        code = self._call("cuptiGetVersion", ctypes.byref(version))
        if code:
            # Since CUDA 13.2 the library answers nothing without a driver that it can use.
            raise TimelineUnavailable(
                TimelineProblem.LIBRARY_TOO_NEW,
                not_started(f"cuptiGetVersion returned {code}"),
                f"install an older {_package(library.major)}, or a newer driver",
                library.path,
            )
        if version.value < _OLDEST_VERSION:
            raise TimelineUnavailable(
                TimelineProblem.LIBRARY_TOO_OLD,
                f"libcupti has version {version.value}, which is older than CUDA 12.0",
                f"pip install {_package(library.major)}",
                library.path,
                version.value,
            )
        self.version = version.value

    def address(self, function: str) -> int:
        """The address of a function; 0 if this version does not have it."""
        try:
            return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    def text(self, code: int) -> str:
        """CUPTI's name of a code."""
        name = ctypes.c_char_p()
        if self._call("cuptiGetResultString", ctypes.c_int(code), ctypes.byref(name)) or not name.value:
            return f"code {code}"
        return name.value.decode(errors="replace")

    def subscribe(self, callback: int) -> tuple[int, int]:
        """Become the subscriber, with a callback that nothing calls before ``detach``; returns code and handle."""
        handle = ctypes.c_void_p()
        code = self._call("cuptiSubscribe", ctypes.byref(handle), ctypes.c_void_p(callback), None)
        return code, handle.value or 0

    def unsubscribe(self, handle: int) -> int:
        """End the subscription."""
        return self._call("cuptiUnsubscribe", ctypes.c_void_p(handle))

    def detach(self, handle: int) -> int:
        """Have the subscriber's callback called at the exit of a driver call, in which it may detach CUPTI.

        NOT_COMPATIBLE before CUDA 12.6.
        """
        if self.version < _DETACHABLE:
            return NOT_COMPATIBLE
        code = self._call(
            "cuptiEnableCallback", ctypes.c_uint32(1), ctypes.c_void_p(handle), ctypes.c_int(_DRIVER_DOMAIN),
            ctypes.c_uint32(_DRIVER_GET_VERSION),
        )  # fmt: skip
        if code == 0:
            ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(ctypes.c_int()))
        return code

    def set_timestamps(self, callback: int) -> int:
        """Convert all times to the clock that ``callback`` reads; before any kind is enabled."""
        return self._call("cuptiActivityRegisterTimestampCallback", ctypes.c_void_p(callback))

    def set_system_thread_ids(self) -> int:
        """Write the kernel's thread ids to records."""
        return self._call("cuptiSetThreadIdType", ctypes.c_int(_THREAD_ID_SYSTEM))

    def set_buffers(self, requested: int, completed: int) -> int:
        """Take buffers from ``requested`` and return them to ``completed``."""
        return self._call("cuptiActivityRegisterCallbacks", ctypes.c_void_p(requested), ctypes.c_void_p(completed))

    def enable(self, kind: int) -> int:
        """Collect records of ``kind``."""
        return self._call("cuptiActivityEnable", ctypes.c_int(kind))

    def leave_out_driver_call(self, number: int) -> int:
        """Collect no records of one function of the driver; NOT_COMPATIBLE before CUDA 12.5."""
        if not self.address("cuptiActivityEnableDriverApi"):
            return NOT_COMPATIBLE
        return self._call("cuptiActivityEnableDriverApi", ctypes.c_uint32(number), ctypes.c_uint8(0))

    def disable(self, kind: int) -> int:
        """Collect no more records of ``kind``."""
        return self._call("cuptiActivityDisable", ctypes.c_int(kind))

    def context_number(self, context: int) -> int | None:
        """The number of a CUcontext in records; None if CUPTI does not know it."""
        number = ctypes.c_uint32()
        code = self._call("cuptiGetContextId", ctypes.c_void_p(context), ctypes.byref(number))
        return None if code else number.value

    def stream_number(self, context: int, stream: int) -> int | None:
        """The number of a CUstream in records, unique within its context; None if CUPTI does not know it."""
        number = ctypes.c_uint32()
        code = self._call(
            "cuptiGetStreamIdEx", ctypes.c_void_p(context), ctypes.c_void_p(stream), ctypes.c_uint8(0),
            ctypes.byref(number),
        )  # fmt: skip
        return None if code else number.value

    def _call(self, function: str, *arguments: object) -> int:
        bound = getattr(self._library, function, None)
        if bound is None:
            return NOT_COMPATIBLE
        return int(bound(*arguments))


def load(driver_version: int) -> Cupti:
    """The first library on this machine that matches the driver and can be loaded.

    Raises TimelineUnavailable, with the reason of the first one, if there is none.
    """
    first: TimelineUnavailable | None = None
    for library in matching(driver_version, found_libraries()):
        try:
            return Cupti(library)
        except TimelineUnavailable as error:
            first = first or error
    assert first is not None
    raise first


# Reason for a missing timeline (CUPTI's records of the GPU's work) by CUPTI's result code: kind of problem, cause and
# remedy.
_PROBLEMS = {
    TAKEN: (
        TimelineProblem.TAKEN,
        "another profiler uses CUPTI in the engine's process",
        "run stallscope without nsys, ncu, compute-sanitizer or an injected library",
    ),
    41: (
        TimelineProblem.CONFIDENTIAL_COMPUTING,
        "CUPTI does not work under confidential computing",
        "the timeline needs a GPU with confidential computing off",
    ),
    33: (TimelineProblem.VIRTUAL_GPU, "CUPTI does not work on this virtual GPU", "use a GPU that is passed through"),
    40: (
        TimelineProblem.VIRTUAL_GPU,
        "the hypervisor does not let CUPTI trace this virtual GPU",
        "enable profiling for the virtual machine",
    ),
    35: (TimelineProblem.NOT_SUPPORTED, "CUPTI lacks privileges", "see nvidia.com/ERR_NVGPUCTRPERM"),
    42: (TimelineProblem.NOT_SUPPORTED, "CUPTI does not support mining GPUs", "use another GPU"),
    43: (TimelineProblem.NOT_SUPPORTED, "CUPTI does not support this MIG configuration", "use a whole GPU"),
    45: (TimelineProblem.NOT_SUPPORTED, "CUPTI does not support this GPU under WSL", "use Linux"),
    NOT_INITIALIZED: (
        TimelineProblem.LIBRARY_TOO_NEW,
        not_started("usual if it is newer than the driver"),
        "install an older nvidia-cuda-cupti, or a newer driver",
    ),
}


def refusal(cupti: Cupti, function: str, code: int) -> TimelineUnavailable:
    """The exception for a call that returned ``code``."""
    problem = _PROBLEMS.get(code)
    if problem is not None:
        return TimelineUnavailable(*problem, library=cupti.path, version=cupti.version)
    sentence = f"{function} returned {code} ({cupti.text(code)})"
    do = "see stallscope doctor, and NVIDIA's list of CUPTI errors"
    return TimelineUnavailable(TimelineProblem.FAILED, sentence, do, cupti.path, cupti.version)


def _own_maps() -> str:
    try:
        return Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ""


def _in_packages(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        if folder:
            yield from _newest_first(Path(folder).glob("nvidia/*/lib/libcupti.so*"))


def _in_toolkits(environment: dict[str, str]) -> Iterator[str]:
    roots = [Path(environment[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)]
    for folder in _TOOLKIT_ROOTS:
        roots += sorted(Path(folder).glob("cuda*"), reverse=True)
    for root in roots:
        for folder in _TOOLKIT_FOLDERS:
            yield from _newest_first((root / folder).glob("libcupti.so*"))


def _newest_first(paths: Iterable[Path]) -> list[str]:
    matching = [str(path) for path in paths if _SONAME.search(path.name)]
    return sorted(matching, key=lambda path: (_major(path, os.path.realpath(path)) or 0, path), reverse=True)


def _major(path: str, real: str) -> int | None:
    """The CUDA major version in the file's name; files of toolkits have the year of CUPTI in their longest name."""
    for name in (path, real):
        match = _SONAME.search(name)
        if match is not None and match[1] is not None and int(match[1]) < 100:
            return int(match[1])
    folder = re.search(r"cuda-(\d+)", real)
    return None if folder is None else int(folder[1])


# Version of CUDA by ``cuptiGetVersion``.
_TOOLKITS = {18: "12.0", 19: "12.1", 20: "12.2", 21: "12.3", 22: "12.4", 23: "12.5", 24: "12.6", 26: "12.8", 27: "12.9",
             28: "12.9"}  # fmt: skip
# Program that prints the version of a libcupti. The program runs in a process of its own. Reason: loading a libcupti
# may crash the process.
_ASK = (
    "import ctypes, sys; version = ctypes.c_uint32();"
    " print(ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version)), version.value)"
)


def version_text(version: int) -> str:
    """The CUDA version of a libcupti: 13.1 for 130100, 12.0 for 18."""
    if version >= 100_000:
        return f"{version // 10_000}.{version // 100 % 100}"
    return _TOOLKITS.get(version, f"API version {version}")


def ask_version(path: str, timeout_s: float = 10.0) -> int | None:
    """``cuptiGetVersion`` of a library, asked in a child process, which it may crash; None if it gives no answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _ASK, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
        code, version = (int(word) for word in done.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return version if code == 0 else None
