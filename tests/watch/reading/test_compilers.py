"""Compilers of device code by the frames of a stack: those that compile, not those that run what was compiled."""

from __future__ import annotations

import pytest

from stallprobes.watch.reading.compilers import DeviceCompiler, compiler_of

LIBRARY = "/usr/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("file", "function", "compiler"),
    [
        ("triton/compiler/compiler.py", "compile", DeviceCompiler.TRITON),
        ("triton/compiler/compiler.py", "launch_metadata", None),
        ("triton/compiler/code_generator.py", "visit_Call", DeviceCompiler.TRITON),
        ("triton/backends/nvidia/compiler.py", "make_cubin", DeviceCompiler.TRITON),
        ("triton/backends/nvidia/driver.py", "__call__", None),
        ("triton/runtime/jit.py", "run", None),
        ("triton/runtime/jit.py", "_do_compile", DeviceCompiler.TRITON),
        ("torch/_dynamo/convert_frame.py", "_compile", DeviceCompiler.TORCH),
        ("torch/_dynamo/convert_frame.py", "compile_inner", DeviceCompiler.TORCH),
        ("torch/_dynamo/convert_frame.py", "__call__", None),
        ("torch/_dynamo/eval_frame.py", "_fn", None),
        ("torch/_dynamo/symbolic_convert.py", "step", DeviceCompiler.TORCH),
        ("torch/_inductor/scheduler.py", "codegen", DeviceCompiler.TORCH),
        ("torch/_inductor/output_code.py", "__call__", None),
        ("torch/_inductor/compile_fx.py", "fx_codegen_and_compile", DeviceCompiler.TORCH),
        ("torch/_inductor/compile_fx.py", "run", None),
        ("torch/_inductor/runtime/triton_heuristics.py", "autotune_to_one_config", DeviceCompiler.TORCH),
        ("torch/_inductor/runtime/triton_heuristics.py", "run", None),
        ("jax/_src/compiler.py", "backend_compile_and_load", DeviceCompiler.JAX),
        ("jax/_src/interpreters/mlir.py", "lower_jaxpr_to_module", DeviceCompiler.JAX),
        ("jax/_src/pjit.py", "cache_miss", None),
        ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "xla::Autotuner::GetTunedConfig(int) const", DeviceCompiler.JAX),
        ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "xla::gpu::GpuCompiler::RunHloPasses()", DeviceCompiler.JAX),
        ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "xla::gpu::GpuExecutable::Execute()", None),
        ("cupy/cuda/compiler.py", "compile_using_nvrtc", DeviceCompiler.CUPY),
        ("numba/cuda/compiler.py", "compile_cuda", DeviceCompiler.NUMBA),
        ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "", DeviceCompiler.NVRTC),
        ("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.13.0", "", DeviceCompiler.NVRTC),
        ("mine/compiler.py", "compile", None),
    ],
)
def test_a_frame_compiles_or_not(file: str, function: str, compiler: DeviceCompiler | None) -> None:
    assert compiler_of([(f"{LIBRARY}/{file}", function)]) is compiler


def test_the_outermost_compiler_counts() -> None:
    frames = [
        (f"{LIBRARY}/triton/compiler/compiler.py", "compile"),
        (f"{LIBRARY}/torch/_inductor/async_compile.py", "triton"),
        ("/home/me/train.py", "step"),
    ]
    assert compiler_of(frames) is DeviceCompiler.TORCH
    assert compiler_of(frames[:1] + frames[2:]) is DeviceCompiler.TRITON
    assert compiler_of(frames[2:]) is None


def test_a_module_that_is_imported_compiles_nothing() -> None:
    imported = [
        (f"{LIBRARY}/torch/_dynamo/symbolic_convert.py", "InstructionTranslator"),
        (f"{LIBRARY}/torch/_dynamo/symbolic_convert.py", "<module>"),
        ("/home/me/train.py", "<module>"),
    ]
    assert compiler_of(imported) is None
    # A program of its own in a folder of such a name is none of these packages.
    trains = [(f"{LIBRARY}/torch/_inductor/graph.py", "run"), ("/home/me/torch/train.py", "<module>")]
    assert compiler_of(trains) is DeviceCompiler.TORCH
    # A program that compiles in its own module body does.
    assert compiler_of([(f"{LIBRARY}/torch/_inductor/graph.py", "run"), *imported[2:]]) is DeviceCompiler.TORCH
