"""Settings of a program that can cost it time, by the environment and the command with which it was started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stallprobes.foreign_text import printable

# Values that switch a setting off.
_OFF = ("", "0", "false", "no", "off", "n")
# Effect of a setting that is on, by the name of its variable (CUDA programming guide, "CUDA Environment Variables";
# PyTorch's documentation of its environment variables).
_SWITCHES = {
    "CUDA_LAUNCH_BLOCKING": "each launch waits until its kernel has ended",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "PyTorch has the driver allocate and free the memory of each tensor",
    "CUDA_CACHE_DISABLE": "device code that is compiled from PTX is compiled anew in each run",
    "TORCH_NCCL_BLOCKING_WAIT": "a wait() for a collective holds up the host until that has ended",
    "NCCL_BLOCKING_WAIT": "a wait() for a collective holds up the host until that has ended",
    "NCCL_P2P_DISABLE": "GPUs exchange data through the memory of the host",
    "TORCHDYNAMO_DISABLE": "torch.compile compiles nothing",
    "TORCH_COMPILE_DISABLE": "torch.compile compiles nothing",
    "JAX_DEBUG_NANS": "JAX reads each result and checks it for NaN",
    "JAX_DISABLE_JIT": "JAX compiles nothing and runs one operation after the other",
    "PYTHONTRACEMALLOC": "Python notes where each block of its memory is allocated",
}
# Effect of a setting with a certain value, by the name of its variable and the value (sources: see _SWITCHES).
_VALUES = {
    ("CUDA_DEVICE_MAX_CONNECTIONS", "1"): "all streams share one queue of the GPU, so that work of one stream can wait "
    "for that of another",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "PyTorch compares the ranks before each collective",
    ("XLA_PYTHON_CLIENT_ALLOCATOR", "PLATFORM"): "JAX has the driver allocate and free the memory of each array",
}
# Effect of a tool under which Python runs the program, by its name in the command (sources: the tools' documentation).
_TOOLS = {
    "cProfile": "each call of a function of Python takes longer",
    "profile": "each call of a function of Python takes longer",
    "viztracer": "each call of a function of Python takes longer",
    "coverage": "each line of Python takes longer",
    "trace": "each line of Python takes longer",
    "kernprof": "each line of the profiled functions takes longer",
    "memray": "each allocation of memory takes longer",
}
# Pattern of a command that runs a tool: as a module of Python, or as a program.
_TOOL = re.compile(rf"(?:\S*/)?(?:python[\d.]* (?:-\S+ )*-m |python[\d.]* \S*/)?({'|'.join(_TOOLS)}) ")
# Largest number of characters of a setting's value that a sentence shows.
_LONGEST = 16
# Variable with the number of threads that OpenMP, and with it most libraries for the CPU, starts for parallel work.
_THREADS = "OMP_NUM_THREADS"


def settings_that_cost(environment: Mapping[str, str], cpus: int | None, command: str) -> Iterator[str]:
    """Sentences on settings in ``environment`` and ``command`` of a program that may use so many CPUs (None where it is
    not known)."""
    if tool := _TOOL.match(command):
        yield f"{tool[1]} runs the program: {_TOOLS[tool[1]]}."
    for name, does in _SWITCHES.items():
        value = environment.get(name, "")
        if value.strip().lower() not in _OFF:
            yield f"{name}={printable(value[:_LONGEST])} is set: {does}."
    for (name, value), does in _VALUES.items():
        if environment.get(name, "").strip().upper() == value:
            yield f"{name}={value} is set: {does}."
    threads = environment.get(_THREADS, "").partition(",")[0].strip()
    if cpus and threads.isdecimal() and len(threads) < 6 and int(threads) > cpus:
        yield f"{_THREADS}={threads} is set: parallel work of the host has more threads than the {cpus} CPUs for it."
