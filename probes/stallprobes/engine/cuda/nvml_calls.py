"""Addresses of NVML's functions, for probes that call them."""

from __future__ import annotations

import ctypes

from stallprobes.errors import Unsupported

_LIBRARY = "libnvidia-ml.so.1"


class NvmlCalls:
    """NVML, loaded and initialised on first use."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

    def address(self, function: str) -> int:
        """The address of an NVML function. Raises Unsupported without NVML or without the function."""
        try:
            found = getattr(self._loaded(), function)
        except AttributeError:
            raise Unsupported(f"this NVML has no {function}") from None
        return ctypes.cast(found, ctypes.c_void_p).value or 0

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
                library = ctypes.CDLL(_LIBRARY)
            except OSError as error:
                raise Unsupported(f"NVML is missing: {_LIBRARY} cannot be loaded") from error
            status = library.nvmlInit_v2()
            if status != 0:
                raise Unsupported(f"NVML cannot be initialised (code {status})")
            self._library = library
        return self._library
