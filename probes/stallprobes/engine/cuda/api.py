"""libcuda through cuda-python: checked calls for setup, and the addresses of driver functions for op tables.

Setup uses the bindings; the compiled loop calls timed functions by address. Addresses come from cuGetProcAddress at the
CUDA version whose signature the ops are written for, so that a newer driver or cuda-python does not change a call.
"""

from __future__ import annotations

from typing import Any

from stallprobes.errors import EXIT_ENGINE, EXIT_NO_GPU, BackendError, Unsupported

# Version 12.0 of the driver API, which most driver functions are called with. CUDA numbers versions as 1000 × major +
# 10 × minor.
CUDA_12_0 = 12_000
# Version 12.8 of the driver API. cuMemcpyBatchAsync is called with the signature of this version.
CUDA_12_8 = 12_080

# Version of the driver API that selects the variant of a function, by the function's name. Functions that are not
# listed use CUDA_12_0.
_VERSIONS = {"cuCtxCreate": 3_020, "cuMemcpyBatchAsync": CUDA_12_8, "cuGreenCtxCreate": 12_040}

# Code of CUDA_ERROR_OUT_OF_MEMORY.
OUT_OF_MEMORY = 2
# Code of CUDA_ERROR_DEVICE_UNAVAILABLE: one reason is a GPU that admits one process at a time (CUDA driver API,
# CUresult).
DEVICE_UNAVAILABLE = 46
# Codes of sticky errors, after which every call in the context returns the same error (CUDA driver API, CUresult).
STICKY_ERRORS = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})


class CudaError(Exception):
    """A setup call returned ``code``; ``text`` is CUDA's name and description of it."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function} returned {code} ({text})")
        self.function = function
        self.code = code
        self.text = text


class Api:
    """The initialised driver. Raises BackendError (EXIT_NO_GPU) if there is no usable driver."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise BackendError(EXIT_NO_GPU, f"cuda-python's driver bindings cannot be imported: {error}") from error
        self.driver: Any = driver
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            raise BackendError(EXIT_NO_GPU, f"no usable GPU: {error}") from error
        except Exception as error:
            # Without libcuda the bindings raise an exception whose type depends on their version.
            raise BackendError(EXIT_NO_GPU, "no NVIDIA driver: libcuda.so.1 cannot be loaded") from error
        self.version = int(self.call("cuDriverGetVersion"))
        self._addresses: dict[str, int] = {}

    def call(self, function: str, *args: object) -> Any:
        """Call ``function`` of the bindings; returns its result, a tuple of several, or None.

        Raises CudaError for a return code other than 0, Unsupported if the bindings lack the function.
        """
        bound = getattr(self.driver, function, None)
        if bound is None:
            raise Unsupported(f"cuda-python has no {function}: a newer cuda-bindings package is needed")
        status, *results = bound(*args)
        if int(status) != 0:
            raise CudaError(function, int(status), self.text(int(status)))
        if not results:
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def has(self, function: str) -> bool:
        """True if the driver has ``function``."""
        try:
            return self.address(function) != 0
        except Unsupported:
            return False

    def address(self, function: str) -> int:
        """The address of a driver function. Raises Unsupported if this driver does not have it."""
        if function not in self._addresses:
            version = min(_VERSIONS.get(function, CUDA_12_0), self.version)
            status, address, *_ = self.driver.cuGetProcAddress(function.encode(), version, 0)
            if int(status) != 0 or not int(address):
                needed = _VERSIONS.get(function, CUDA_12_0)
                have = f"{self.version // 1000}.{self.version % 1000 // 10}"
                raise Unsupported(
                    f"the driver (CUDA {have}) has no {function}: install a driver for CUDA {needed // 1000}."
                    f"{needed % 1000 // 10} or newer"
                )
            self._addresses[function] = int(address)
        return self._addresses[function]

    def text(self, code: int) -> str:
        """CUDA's name and description of a return code."""
        try:
            result = self.driver.CUresult(code)
        except ValueError:
            return "unknown to this cuda-python"
        _, name = self.driver.cuGetErrorName(result)
        _, description = self.driver.cuGetErrorString(result)
        return ": ".join(part.decode() if isinstance(part, bytes) else str(part) for part in (name, description))


def setup_error(error: CudaError, what: str) -> Unsupported | BackendError:
    """The exception for a failed setup call: Unsupported for a resource that this GPU cannot give now, else
    BackendError."""
    if error.code == OUT_OF_MEMORY:
        return Unsupported(f"too little GPU memory for {what}")
    if error.code == DEVICE_UNAVAILABLE:
        return Unsupported(f"the GPU is unavailable for {what}: in exclusive-process mode it admits one process")
    return BackendError(EXIT_ENGINE, f"{what} could not be created: {error}")
