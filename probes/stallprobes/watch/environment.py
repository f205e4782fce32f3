"""Environment of a watched program: what makes its libcuda load the injected library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import NativeLibraryError, WatchError
from stallprobes.machine.libcuda_survey import LIBRARY
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.attaching import ASLEEP_VARIABLE
from stallprobes.native.library import injected_library
from stallprobes.records.libcupti import ask_version, found_libraries, matching
from stallprobes.records.timeline import TimelineUnavailable
from stallprobes.watch.causes.known_stalls import KnownStalls

# Environment variable with the path of a library that the CUDA driver loads at the program's first driver call.
INJECTION_VARIABLE = "CUDA_INJECTION64_PATH"
# Environment variable with the paths of the libraries that the dynamic linker loads before all other libraries.
PRELOAD_VARIABLE = "LD_PRELOAD"
# Environment variable with the path of the library that receives a program's NVTX calls.
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"


@dataclass(frozen=True)
class WatchOptions:
    """How a program is watched.

    - ``slow_ns``: calls of at least this time are kept one by one.
    - ``calls_only``: no records of the GPU's work.
    - ``yield_to_profiler``: the library gives CUPTI up when the program's own profiler asks for it; without it, that
      profiler finds CUPTI taken.
    - ``stacks``: slow calls carry their call stacks, for at most 1 % of the time.
    - ``cost``: the share (0 to 1) of the program's time that watching may take; 1 records everything.
    - ``known``: the pairs of calls that stall on this machine; the library does not use them.
    """

    slow_ns: int = layout.DEFAULT_SLOW_NS
    calls_only: bool = False
    yield_to_profiler: bool = False
    stacks: bool = True
    cost: float = layout.DEFAULT_COST_PPM / layout.EVERYTHING_PPM
    known: KnownStalls | None = None


def library() -> Path:
    """The library that programs load. Raises WatchError if it is not built, damaged, or cannot be executed."""
    try:
        path = injected_library()
    except NativeLibraryError as error:
        raise WatchError(error.sentence) from error
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        # The driver would ignore it without a word.
        raise WatchError(f"nothing can be executed in {path.parent} (noexec): install stallscope elsewhere.")
    return path


def variables(
    library: Path, folder: Path, options: WatchOptions, present: Mapping[str, str], cupti: Path | None = None
) -> dict[str, str]:
    """The variables to add to the environment ``present`` of a program.

    ``cupti`` is the libcupti to load where the program has loaded none, or, unless the library yields to the program's
    profiler, one that records no context switches. Raises
    WatchError if another tool is injected, or if the library cannot be loaded from its folder.
    """
    other = present.get(INJECTION_VARIABLE)
    if other and other != str(library):
        raise WatchError(
            f"{INJECTION_VARIABLE} names another tool's library ({other}): only one can be injected; unset it, or do"
            " without watch."
        )
    if options.slow_ns < 0:
        raise WatchError("a call is slow from 0 ns on or more.")
    if not 0 < options.cost <= 1:
        raise WatchError("watching may cost more than 0 % of the program's time, and at most 100 %.")
    added = {
        INJECTION_VARIABLE: str(library),
        layout.FOLDER_VARIABLE: str(folder),
        layout.SLOW_VARIABLE: str(options.slow_ns),
        layout.CALLS_ONLY_VARIABLE: str(int(options.calls_only)),
        layout.YIELD_VARIABLE: str(int(options.yield_to_profiler)),
        layout.NO_STACKS_VARIABLE: str(int(not options.stacks)),
        layout.COST_VARIABLE: str(round(options.cost * layout.EVERYTHING_PPM)),
    }
    if not present.get(NVTX_VARIABLE):
        # Another tool's stays: then the program's ranges are not known.
        added[NVTX_VARIABLE] = str(library)
    if cupti is not None:
        added[layout.CUPTI_VARIABLE] = str(cupti)
    if options.yield_to_profiler:
        # Preloaded, the library sees the profiler's call before libcupti does.
        loaded = present.get(PRELOAD_VARIABLE, "")
        if set(str(library)) & {" ", ":"}:
            raise WatchError(
                f"--yield-to-profiler needs {PRELOAD_VARIABLE}, which takes no path with a space or colon, as"
                f" {library.parent} is: install stallscope elsewhere."
            )
        added[PRELOAD_VARIABLE] = f"{library}:{loaded}" if loaded else str(library)
    return added


def asleep_variables(library: Path, options: WatchOptions, present: Mapping[str, str]) -> dict[str, str]:
    """The variables to add for programs in which the library sleeps until it is woken.

    What is recorded then, and where, is chosen when it is woken. Raises WatchError as ``variables``.
    """
    added = variables(library, Path("/"), options, present)
    kept = (INJECTION_VARIABLE, NVTX_VARIABLE, PRELOAD_VARIABLE)
    return {name: value for name, value in added.items() if name in kept} | {ASLEEP_VARIABLE: "1"}


def find_cupti(driver_version: int) -> Path | None:
    """The newest libcupti for a driver (13000: of CUDA 13.0) on this machine; None without one.

    Programs use it that have loaded none. See ``variables`` and ``Control.record`` for those that have an older one.
    """
    try:
        libraries = matching(driver_version, found_libraries())
    except TimelineUnavailable:
        return None
    if len(libraries) > 1:
        # An environment with PyTorch has its libcupti 13.0 too.
        libraries.sort(key=lambda cupti: ask_version(cupti.path) or 0, reverse=True)
    return Path(libraries[0].path)


def is_cupti_named() -> bool:
    """True if the user names a libcupti."""
    return bool(os.environ.get(layout.CUPTI_VARIABLE))


def libcupti_of(present: Mapping[str, str]) -> Path | None:
    """The libcupti that an environment names, else the first that fits the driver of this machine; None without any."""
    named = present.get(layout.CUPTI_VARIABLE)
    return Path(named) if named else cupti_of_this_machine()


def cupti_of_this_machine(libcuda: str = LIBRARY) -> Path | None:
    """The first libcupti that fits the driver; None without one, or without a driver."""
    version = ctypes.c_int(0)
    try:
        # It is known without initialization, so that nothing is created on a GPU.
        code = ctypes.CDLL(libcuda).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return find_cupti(version.value) if code == 0 and version.value > 0 else None
