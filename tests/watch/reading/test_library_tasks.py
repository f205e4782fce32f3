"""Tasks of libraries by the frames of a stack: those beside the program's own work, not that work."""

from __future__ import annotations

import pytest

from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.library_tasks import LibraryTask, is_part, task_of

SITE = "/usr/lib/python3.12/site-packages"
ATEN, CUDA, C10 = (f"{SITE}/torch/lib/{name}.so" for name in ("libtorch_cpu", "libtorch_cuda", "libc10_cuda"))
CUDNN, LT, RUNTIME = "/opt/libcudnn_graph.so.9", "/opt/libcublasLt.so.13", "/opt/libcudart.so.13"
ENGINE = (ATEN, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)")
READ = (
    (CUDA, "at::native::_local_scalar_dense_cuda(at::Tensor const&)"),
    (ATEN, "at::_ops::item::call(at::Tensor const&)"),
)
ALLOCATE = (C10, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)")
CONV = (
    CUDA,
    "at::native::run_single_conv(cudnnBackendDescriptorType_t, at::Tensor const&)",
)
SORTED = (
    "std::vector<cudnn_frontend::ExecutionPlan_v8, std::allocator<cudnn_frontend::ExecutionPlan_v8> > "
    "cudnn_frontend::time_sorted_plan<(cudnn_frontend::CudnnFindSamplingTechnique)0>(cudnnContext*)"
)
EMPTY = (C10, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::emptyCache(std::pair<int, int>)")


@pytest.mark.parametrize(
    ("frames", "task"),
    [
        ([*READ, (ATEN, "bool at::Tensor::item<bool>() const"), ENGINE], LibraryTask.ANOMALY),
        ([(ATEN, "at::_ops::isnan::call(at::Tensor const&)"), ENGINE], LibraryTask.ANOMALY),
        # A node of the graph that reads a value, as one of a function of the user's.
        (
            [
                *READ,
                (ATEN, "torch::autograd::PyNode::apply(int)"),
                (ATEN, "torch::autograd::Node::operator()()"),
                ENGINE,
            ],
            None,
        ),
        ([(ATEN, "at::_ops::mm::call(at::Tensor const&)"), ENGINE], None),
        ([*READ, (ATEN, "torch::autograd::THPVariable_item(_object*, _object*)")], None),
        (
            [("/usr/lib/python3.12/traceback.py", "extract"), (f"{SITE}/torch/fx/traceback.py", "format_stack")],
            LibraryTask.ANOMALY,
        ),
        ([(f"{SITE}/torch/fx/traceback.py", "preserve_node_meta")], None),
        ([(CUDNN, ""), (CUDNN, "cudnnBackendFinalize"), CONV], LibraryTask.CUDNN_SEARCH),
        ([("/opt/libcudnn_cnn_infer.so.8", "cudnnFindConvolutionForwardAlgorithmEx")], LibraryTask.CUDNN_SEARCH),
        ([(CUDNN, "cudnnBackendExecute"), CONV], None),
        (
            [(CUDA, "at::native::(anonymous namespace)::get_plans_from_find(cudnnContext*)"), CONV],
            LibraryTask.CUDNN_SEARCH,
        ),
        ([(CUDNN, "cudnnBackendExecute"), (CUDA, SORTED), CONV], LibraryTask.CUDNN_SEARCH),
        ([(RUNTIME, "cudaFree"), EMPTY, CONV], LibraryTask.CUDNN_SEARCH),
        ([(RUNTIME, "cudaFree"), EMPTY, ("/home/me/train.py", "step")], None),
        # What cuBLAS does within each product of matrices.
        ([(LT, ""), (LT, "cublasLtSSSMatmulAlgoGetHeuristic")], None),
        (
            [(RUNTIME, "cudaFree"), (C10, "release_block(Block*)"), (C10, ALLOCATE[1])],
            LibraryTask.CACHE_FREE,
        ),
        ([(RUNTIME, "cudaMalloc"), ALLOCATE], None),
        ([(RUNTIME, "cudaFree"), ("/home/me/a.out", "Pool::allocate(unsigned long)")], None),
        ([(f"{SITE}/torch/profiler/profiler.py", "stop_trace")], LibraryTask.PROFILER),
        ([(f"{SITE}/torch/autograd/profiler.py", "_parse_kineto_results")], LibraryTask.PROFILER),
        # The begin of a named range, which optimizers have without a profiler too.
        ([(f"{SITE}/torch/autograd/profiler.py", "__enter__")], None),
        ([(f"{SITE}/torch/nn/modules/conv.py", "forward")], None),
        ([("/home/me/profiler/profiler.py", "step")], None),
    ],
)
def test_a_stack_is_of_a_task_or_not(frames: list[tuple[str, str]], task: LibraryTask | None) -> None:
    around = [("/lib/libcuda.so.1", "cuMemFree_v2"), *frames, ("/home/me/train.py", "<module>")]
    assert task_of(around) is task


def test_launches_at_a_line_that_searched_once_are_no_search() -> None:
    assert not is_part(LibraryTask.CUDNN_SEARCH, "cuLaunchKernel")
    assert not is_part(LibraryTask.CUDNN_SEARCH, "cuKernelGetFunction")
    assert is_part(LibraryTask.CUDNN_SEARCH, "cuMemAlloc_v2")
    assert is_part(LibraryTask.CUDNN_SEARCH, "cuEventSynchronize")
    assert is_part(LibraryTask.CUDNN_SEARCH, "cuLibraryLoadData")
    assert is_part(LibraryTask.ANOMALY, "cuLaunchKernel")


def test_inside_a_compiler_stacks_of_python_are_no_anomaly_detection() -> None:
    def stack(*frames: tuple[str, str]) -> CallStack:
        return CallStack(tuple(StackFrame(FrameKind.PYTHON, function, file) for file, function in frames))

    traced = (f"{SITE}/torch/fx/traceback.py", "format_stack")
    assert stack(traced).task is LibraryTask.ANOMALY
    assert stack(traced, (f"{SITE}/torch/_dynamo/symbolic_convert.py", "step")).task is None
