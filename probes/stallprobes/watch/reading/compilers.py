"""Compilers of device code that run inside a program, by the frames of its call stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

# Separator between a frame's file and its function in the texts that the patterns match.
_SEPARATOR = "\n"


class DeviceCompiler(StrEnum):
    """Compiler of device code, by the name that its users know."""

    TRITON = "Triton"
    TORCH = "torch.compile"
    JAX = "JAX"
    CUPY = "CuPy"
    NUMBA = "Numba"
    NVRTC = "NVRTC"


# Patterns of the files and functions of each compiler. A file that a compiled program also runs through is left out, or
# has only its functions that compile. If several match, the outermost frame decides: torch.compile calls Triton.
_PATTERNS = {
    DeviceCompiler.TORCH: r"/torch/(?:_dynamo/symbolic_convert\.py\n|_dynamo/convert_frame\.py\n(?:_?compile|transform)"
    r"|_inductor/(?:graph|scheduler|lowering|async_compile)\.py\n|_inductor/codegen/"
    r"|_inductor/compile_fx\.py\n\w*(?:compile|codegen)|_inductor/runtime/triton_heuristics\.py\n\w*(?:compile|autotune))",
    DeviceCompiler.TRITON: r"/triton/(?:compiler/code_generator\.py\n|compiler/compiler\.py\n(?:compile|make_ir|parse)$"
    r"|backends/\w+/compiler\.py\n|runtime/build\.py\n|runtime/jit\.py\n_do_compile)",
    DeviceCompiler.JAX: r"/jax/_src/(?:compiler\.py\n|interpreters/mlir\.py\n\w*lower)"
    r"|/xla_cuda_plugin\.so\nxla::(?:Autotuner|(?:gpu::)?\w*Compiler)::",
    DeviceCompiler.CUPY: r"/cupy/cuda/compiler\.py\n",
    DeviceCompiler.NUMBA: r"/numba/(?:core/compiler|cuda/compiler|cuda/cudadrv/nvvm)\.py\n",
    DeviceCompiler.NVRTC: r"/libnvrtc[-.\w]*\.so[.\d]*\n",
}
_COMPILERS = re.compile("|".join(f"(?P<{name.name}>{pattern})" for name, pattern in _PATTERNS.items()))
# Pattern of the module bodies of the compilers' packages. What such a body runs belongs to the import, and compiles
# nothing.
_IMPORTS = re.compile(
    rf"/(?:site|dist)-packages/(?:torch/(?:_dynamo|_inductor)|triton|jax|cupy|numba)/.*{_SEPARATOR}<module>$"
)


def compiler_of(frames: Iterable[tuple[str, str]]) -> DeviceCompiler | None:
    """The outermost compiler among ``frames``, each a file and a function, innermost first; None without one."""
    found = None
    for file, function in frames:
        if _IMPORTS.search(f"{file}{_SEPARATOR}{function}"):
            found = None
        elif match := _COMPILERS.search(f"{file}{_SEPARATOR}{function}"):
            found = DeviceCompiler[str(match.lastgroup)]
    return found
