"""Tasks that a library does beside the program's own work, by the frames of its call stacks.

The names are those of PyTorch 2.x (``torch/csrc/autograd/engine.cpp``, ``c10/cuda/CUDACachingAllocator.cpp``,
``aten/src/ATen/native/cudnn/Conv_v8.cpp``, ``torch/profiler``) and of cuDNN 7 to 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from stallprobes.native.layouts.driver_calls import CallKind, function_of

# Separators in the text of a stack that the patterns match: behind each frame, and between its file and its function.
_FRAME, _FUNCTION = "\0", "\n"


class TaskTraits(NamedTuple):
    """A task in words: what is done, as a clause, and what helps; and the pattern of its stacks.

    ``is_rare``: only calls are part of it that the program's own work does not make, such as loads of code and waits.
    Reason: calls of one function at one line of Python have the native frames of the first of them, which may be of the
    task where later ones are the program's own work.
    """

    clause: str
    remedy: str
    pattern: str
    is_rare: bool = False
    # Smallest share of the time without GPU work from which on the task is the reason of a verdict.
    least: float = 0.5


class LibraryTask(StrEnum):
    """Task of a library beside the program's own work."""

    ANOMALY = "anomaly"
    CUDNN_SEARCH = "cudnn-search"
    CACHE_FREE = "cache-free"
    PROFILER = "profiler"

    @property
    def traits(self) -> TaskTraits:
        """Its row of the table."""
        return TASKS[self]


# Kinds of calls that launch nothing, and that hardly any other work makes at a line that launches kernels.
_RARE = (CallKind.WAITS, CallKind.FREES, CallKind.ALLOCATES, CallKind.LOADS)
# The tasks by what their stacks have. The first one that matches counts.
TASKS = {
    # The stack of Python behind each operation of the forward pass, and a read of each gradient, by the engine itself
    # and not by a node of the graph.
    LibraryTask.ANOMALY: TaskTraits(
        "PyTorch's anomaly detection checks each operation",
        "switch it off (torch.autograd.set_detect_anomaly) unless a NaN is looked for.",
        r"/torch/fx/traceback\.py\nformat_stack\0|\ntorch::autograd::PyAnomalyMetadata::"
        r"|\nat::_ops::(?:isnan|_is_any_true|any|item)::call\([^\0]*\0(?:[^\0]*\n[^\0]*at::Tensor::[^\0]*\0)?"
        r"[^\0]*\ntorch::autograd::Engine::evaluate_function\(",
        # Much of it is not seen: the stacks of Python are made by code that runs too fast to be read from outside.
        least=0.25,
    ),
    LibraryTask.CUDNN_SEARCH: TaskTraits(
        "cuDNN searches for an algorithm",
        "keep the shapes and types of its inputs the same, as by padding to a few sizes; without "
        "torch.backends.cudnn.benchmark a search is shorter.",
        r"/libcudnn[-\w]*\.so[.\d]*\n(?:cudnnBackendFinalize|cudnnFind\w+|cudnnGetConvolution\w*Algorithm\w*)\0"
        r"|\n(?:[^\0]* )?at::native::[^\0]*(?:get_plans_from_find|generate_and_filter_plans|try_configs|try_plans)"
        r"|\n[^\0]*cudnn_frontend::[^\0]*(?:time_sorted_plan|time_sampling|cudnnFindPlan|EngineHeuristics|ExecutionPlanBuilder)"
        r"|CUDACachingAllocator::[^\0]*::emptyCache\(.*\nat::native::[^\0]*run_(?:single|fused)_conv\(",
        is_rare=True,
    ),
    # Frees inside an allocation.
    LibraryTask.CACHE_FREE: TaskTraits(
        "PyTorch frees memory that it keeps, in order to allocate",
        "its memory is full or in pieces: use less (smaller batches, checkpoints), or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        r"\n(?:cudaFree|cudaDeviceSynchronize|cudaEventSynchronize|cuMemUnmap)\0.*"
        r"\nc10::cuda::CUDACachingAllocator::[^\0]*::(?:malloc|allocate)\(",
    ),
    LibraryTask.PROFILER: TaskTraits(
        "PyTorch's profiler works",
        "record fewer steps (torch.profiler.schedule), or switch it off.",
        r"/torch/(?:profiler/profiler|autograd/profiler_util)\.py\n"
        r"|/torch/autograd/profiler\.py\n(?:_prepare_trace|_start_trace|_parse_kineto_results|_ensure_function_events"
        r"|key_averages|export_\w+)\0",
    ),
}
_TASKS = {task: re.compile(traits.pattern, re.DOTALL) for task, traits in TASKS.items()}


def task_of(frames: Iterable[tuple[str, str]]) -> LibraryTask | None:
    """The task of which ``frames`` are, each a file and a function, innermost first; None if they are of none."""
    text = "".join(f"{file}{_FUNCTION}{function}{_FRAME}" for file, function in frames)
    return next((task for task, pattern in _TASKS.items() if pattern.search(text)), None)


def is_part(task: LibraryTask, function: str) -> bool:
    """True if calls of a driver's function with frames of a task, and the time before them, are part of the task."""
    return not task.traits.is_rare or function_of(function).kind in _RARE
