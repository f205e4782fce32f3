"""Libraries besides libcuda that probes call, loaded on first use: CUPTI, to profile their own process, and NVML."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from stallprobes.errors import Unsupported
from stallprobes.records.libcupti import Cupti, load
from stallprobes.records.timeline import TimelineUnavailable

# File name of NVML's library.
_NVML = "libnvidia-ml.so.1"


class CuptiFunctions:
    """libcupti, loaded on first use. Loading it does not attach it to the process."""

    def __init__(self, driver_version: int, load: Callable[[int], Cupti] = load) -> None:
        """``load`` finds the library that matches ``driver_version``, or raises TimelineUnavailable."""
        self._driver_version = driver_version
        self._load = load
        self._library: Cupti | None = None

    def address(self, function: str) -> int:
        """The address of a function of CUPTI. Raises Unsupported without the library or without the function."""
        library = self._loaded()
        address = library.address(function)
        if not address:
            raise Unsupported(f"the libcupti at {library.path} has no {function}")
        return address

    def text(self, code: int) -> str:
        """CUPTI's name of the code ``code``. Raises Unsupported without the library."""
        return self._loaded().text(code)

    def _loaded(self) -> Cupti:
        if self._library is None:
            try:
                self._library = self._load(self._driver_version)
            except TimelineUnavailable as error:
                status = error.status
                raise Unsupported(f"{status.found}; {status.do}" if status.do else status.found) from error
        return self._library


class NvmlCalls:
    """NVML, loaded and initialised on first use."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

    def address(self, function: str) -> int:
        """The address of an NVML function. Raises Unsupported without NVML or without the function."""
        try:
            entry = getattr(self._loaded(), function)
        except AttributeError:
            raise Unsupported(f"this NVML has no {function}") from None
        return ctypes.cast(entry, ctypes.c_void_p).value or 0

    def device(self, uuid: str) -> int:
        """The nvmlDevice_t of the GPU with this UUID, without prefix. Raises Unsupported if NVML does not list it."""
        handle = ctypes.c_void_p()
        status = self._loaded().nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle))
        if status != 0 or not handle.value:
            raise Unsupported(f"NVML does not list GPU-{uuid} (code {status})")
        return handle.value

    def _loaded(self) -> ctypes.CDLL:
        if self._library is None:
            try:
                library = ctypes.CDLL(_NVML)
            except OSError as error:
                raise Unsupported(f"NVML is missing: {_NVML} cannot be loaded") from error
            status = library.nvmlInit_v2()
            if status != 0:
                raise Unsupported(f"NVML cannot be initialised (code {status})")
            self._library = library
        return self._library
