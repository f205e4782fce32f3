"""libcuda through cuda-python: checked calls, and the addresses that op tables call.

Set-up goes through the bindings; what is timed is called by its address from the compiled loop. Addresses come from
cuGetProcAddress, which is public, at the CUDA version whose signature the ops are written for, so that a newer driver
or a newer cuda-python does not change what a call means.
"""

from __future__ import annotations

from typing import Any

from stallprobes.errors import EXIT_ENGINE, EXIT_NO_GPU, BackendError, Unsupported

CUDA_12_0 = 12_000
CUDA_12_8 = 12_080

# Where the signature of 12.0 is not the one the ops are written for.
_VERSIONS = {"cuCtxCreate": 3_020, "cuMemcpyBatchAsync": CUDA_12_8, "cuGreenCtxCreate": 12_040}

OUT_OF_MEMORY = 2
# Codes after which the context answers every call with the same error (CUDA driver API, CUresult).
STICKY_ERRORS = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})


class CudaError(Exception):
    """A set-up call returned ``code``; ``text`` is CUDA's own for it."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function} returned {code} ({text})")
        self.function = function
        self.code = code
        self.text = text


def _bindings() -> Any:
    from cuda.bindings import driver

    return driver


class Api:
    """The driver, initialised. Raises BackendError with exit code 3 when there is none to use."""

    def __init__(self) -> None:
        try:
            self.driver = _bindings()
        except ImportError as error:
            raise BackendError(EXIT_NO_GPU, f"cuda-python's driver bindings cannot be imported: {error}") from error
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            raise BackendError(EXIT_NO_GPU, f"no usable GPU: {error}") from error
        except Exception as error:
            # The bindings raise an error of their own kind, which differs by version, when libcuda is not there.
            raise BackendError(EXIT_NO_GPU, "no NVIDIA driver: libcuda.so.1 cannot be loaded") from error
        self.version = int(self.call("cuDriverGetVersion"))
        self._addresses: dict[str, int] = {}

    def call(self, function: str, *args: object) -> Any:
        """Call ``function`` of the bindings; returns its one result, a tuple of several, or None.

        Raises CudaError for a return code other than 0, Unsupported when the bindings do not know it.
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
        """Whether the driver has ``function``."""
        try:
            return self.address(function) != 0
        except Unsupported:
            return False

    def address(self, function: str) -> int:
        """The address of a driver function. Raises Unsupported when this driver has none of that name."""
        if function not in self._addresses:
            version = min(_VERSIONS.get(function, CUDA_12_0), self.version)
            status, address, *_ = self.driver.cuGetProcAddress(function.encode(), version, 0)
            if int(status) != 0 or not int(address):
                needed = _VERSIONS.get(function, CUDA_12_0)
                have = f"{self.version // 1000}.{self.version % 1000 // 10}"
                raise Unsupported(
                    f"the driver (CUDA {have}) has no {function}, which came with CUDA {needed // 1000}."
                    f"{needed % 1000 // 10} or before"
                )
            self._addresses[function] = int(address)
        return self._addresses[function]

    def text(self, code: int) -> str:
        """CUDA's name and words for a return code."""
        try:
            result = self.driver.CUresult(code)
        except ValueError:
            return "a code that this cuda-python does not know"
        _, name = self.driver.cuGetErrorName(result)
        _, words = self.driver.cuGetErrorString(result)
        plain = [part.decode() if isinstance(part, bytes) else str(part) for part in (name, words)]
        return ": ".join(plain)


def setup_error(error: CudaError, what: str) -> Unsupported | BackendError:
    """What a failed set-up call means for the user: out of memory is a limit of this machine, the rest a failure."""
    if error.code == OUT_OF_MEMORY:
        return Unsupported(f"too little GPU memory for {what}")
    return BackendError(EXIT_ENGINE, f"{what} could not be made: {error}")
