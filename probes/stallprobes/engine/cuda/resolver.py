"""Resources of a program on a real GPU, by their names: handles, addresses, kernel parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes import model
from stallprobes.engine.backend import CUPTI, Options
from stallprobes.engine.cuda.api import Api, CudaError, setup_error
from stallprobes.engine.cuda.devices import Contexts
from stallprobes.engine.cuda.libraries import CuptiFunctions, NvmlCalls
from stallprobes.engine.cuda.memory_structs import memory_struct
from stallprobes.engine.host_resolver import CACHE_LINE, HostMemory, HostResolver
from stallprobes.errors import Unsupported
from stallprobes.native.library import core

# Flags of pinned memory: CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP.
_HOST_ALLOC_PORTABLE_MAPPED = 0x01 | 0x02
# Flag of an event (CU_EVENT_BLOCKING_SYNC): a thread that waits for the event sleeps.
_EVENT_BLOCKING_SYNC = 0x01
# Flag of an event that records no time (CU_EVENT_DISABLE_TIMING).
_EVENT_DISABLE_TIMING = 0x02
# Flag of a new stream that does not wait for the default stream.
_STREAM_NON_BLOCKING = 0x01
# Number of words in one block of pinned memory. Kernels write the words, and the host reads the words. Each word has a
# cache line of its own.
_MAPPED_WORDS = 512
# Access of cuMemcpyBatchAsync to the sources: in stream order (CU_MEMCPY_SRC_ACCESS_ORDER_STREAM).
_ORDER_STREAM = 1
# Location of memory in cuMemcpyBatchAsync: not given (CU_MEM_LOCATION_TYPE_INVALID).
_LOCATION_NONE = 0
# Flag of cuMemcpyBatchAsync: the copies should run at the same time as other work.
_PREFER_OVERLAP = 1
# GPU feature that CUmemAllocationProp and CUmemAccessDesc need, as a pair. First item: X in the name of the device
# attribute CU_DEVICE_ATTRIBUTE_X_SUPPORTED, which says whether the GPU has the feature. Second item: name of the
# feature for error messages.
_MAPPING = ("VIRTUAL_MEMORY_MANAGEMENT", "virtual memory management (cuMemMap)")
# GPU feature that each kind of memory structure needs, as a pair like _MAPPING.
_NEEDED = {
    model.MemoryStructKind.ALLOCATION: _MAPPING,
    model.MemoryStructKind.ACCESS: _MAPPING,
    model.MemoryStructKind.POOL: ("MEMORY_POOLS", "memory pools"),
}


def ptx() -> bytes:
    """The package's kernels as a NUL-ended PTX image."""
    return files("stallprobes.engine.cuda").joinpath("kernels.ptx").read_bytes() + b"\0"


class SessionResources:
    """Resources that all probes of a session share: contexts, modules, shared streams and buffers, mapped words.

    ``keep`` holds references to objects whose addresses or handles are in op tables.
    """

    def __init__(self, api: Api, contexts: Contexts, options: Options) -> None:
        self.api = api
        self.contexts = contexts
        self.options = options
        self.memory = HostMemory()
        self.nvml = NvmlCalls()
        self.cupti = CuptiFunctions(api.version)
        self.handles: dict[model.Resource, int] = {}
        self.keep: list[object] = []
        self.bytes_taken = 0
        self._functions: dict[model.Kernel, Any] = {}
        self._modules: dict[model.Context, Any] = {}
        self._mapped: list[int] = []
        self._image = ptx()

    def function(self, kernel: model.Kernel) -> int:
        """The CUfunction of ``kernel`` in its context, launched once, so that lazy loading is over."""
        if kernel not in self._functions:
            self.contexts.use(kernel.context)
            if kernel.context not in self._modules:
                self._modules[kernel.context] = self.api.call("cuModuleLoadData", self._image)
            function = self.api.call("cuModuleGetFunction", self._modules[kernel.context], kernel.name.encode())
            self._functions[kernel] = function
            self._warm_up(kernel, int(function))
        return int(self._functions[kernel])

    def mapped_word(self) -> int:
        """The address of a new word, 0, in pinned memory that kernels of all contexts can write."""
        if not self._mapped:
            self.contexts.use(self.contexts.made()[0])
            size = _MAPPED_WORDS * CACHE_LINE
            block = int(self.api.call("cuMemHostAlloc", size, _HOST_ALLOC_PORTABLE_MAPPED))
            ctypes.memset(block, 0, size)
            self._mapped = [block + CACHE_LINE * number for number in range(_MAPPED_WORDS)]
        return self._mapped.pop()

    def image(self) -> int:
        """The address of the PTX image."""
        return int(np.frombuffer(self._image, dtype=np.uint8).ctypes.data)

    def _warm_up(self, kernel: model.Kernel, function: int) -> None:
        call = c_function(self.api.address("cuLaunchKernel"))
        params = 0 if kernel.name != "spin" else kernel_params(self, 0, 0)
        status = call(function, 1, 1, 1, 1, 1, 1, 0, 0, params, 0)
        if status != 0:
            raise CudaError("cuLaunchKernel", status, self.api.text(status))
        self.api.call("cuCtxSynchronize")


def c_function(address: int) -> Any:
    """The C function at ``address`` as a Python function of integers that returns the status."""

    def call(*args: int) -> int:
        kinds = [ctypes.c_uint64] * len(args)
        return int(ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)(*args))

    return call


def kernel_params(shared: SessionResources, cycles: int, started: int) -> int:
    """The address of a ``void *[2]`` with pointers to the spin kernel's two parameters."""
    values: NDArray[np.uint64] = np.array([cycles, started], dtype=np.uint64)
    pointers: NDArray[np.uint64] = np.array([values.ctypes.data, values.ctypes.data + 8], dtype=np.uint64)
    shared.keep += [values, pointers]
    return int(pointers.ctypes.data)


class CudaResolver(HostResolver):
    """Resolver of one probe; shared resources come from ``shared``."""

    def __init__(self, shared: SessionResources) -> None:
        super().__init__(HostMemory(shared.memory), shared.options.watchdog_ns)
        self._shared = shared
        self._api = shared.api
        self._own: dict[model.Resource, int] = {}

    def function(self, fn: str) -> int:
        """The address of an op's function. Raises Unsupported if driver, NVML, CUPTI or libc does not have it."""
        if fn.startswith("nvml:"):
            return self._shared.nvml.address(fn.removeprefix("nvml:"))
        if fn.startswith(CUPTI):
            return self._shared.cupti.address(fn.removeprefix(CUPTI))
        if fn == "native:discard_records":
            return core().address("ss_discard_buffers")
        if ":" in fn:
            return super().function(fn)
        return self._api.address(fn)

    def word(self, word: model.Word) -> int:
        """The address of ``word``; a mapped word is in pinned memory."""
        if not word.mapped:
            return super().word(word)
        known = self._handles_for(word.shared)
        if word not in known:
            known[word] = self._shared.mapped_word()
        return known[word]

    def value(self, resource: model.Resource | model.KernelArgs) -> int:
        """The handle or address of ``resource``. Raises Unsupported if this machine cannot provide it."""
        match resource:
            case model.Word():
                return self.word(resource)
            case model.KernelArgs():
                raise ValueError("kernel arguments are valid only in a launch")
            case model.HostFunction() | model.Buffer(space=model.Space.PAGEABLE):
                return super().value(resource)
            case model.Context():
                return int(self._shared.contexts.handle(resource))
            case model.Kernel():
                return self._shared.function(resource)
            case model.Device(index, True):
                return self._shared.nvml.device(self._shared.contexts.device(index).uuid)
            case model.Device(index, False):
                return int(self._shared.contexts.device(index).handle)
            case model.Image():
                return self._shared.image()
            case model.MemoryStruct(kind, index):
                return self._memory_struct(kind, index)
            case model.Stream(kind=model.StreamKind.NULL):
                self._shared.contexts.handle(resource.context)
                return 0
            case model.Buffer() | model.Stream() | model.Event() | model.Graph() | model.CopyAttributes():
                known = self._handles_for(getattr(resource, "shared", False))
                if resource not in known:
                    known[resource] = self._make(resource)
                return known[resource]
            case _:
                return super().value(resource)

    def lower(self, op: model.Op) -> Sequence[model.Arg] | None:
        """The C arguments of the calls whose ops have fewer arguments than the C function."""
        match op.fn, op.args:
            case "cuLaunchKernel", (
                target,
                int(blocks),
                int(threads),
                model.Stream() as stream,
                model.KernelArgs() as args,
            ):
                params = self._params(args, stream.context)
                grid = blocks or self._full_grid_blocks(stream.context, threads)
                return (target, grid, 1, 1, threads, 1, 1, 0, stream, params, 0)
            case "cuLaunchHostFunc", (model.Stream() as stream, model.HostFunction(name) as function):
                return (stream, core().helper(name), self.value(function))
            case "native:poll", (model.Event() | model.Stream() as target, int(step_ns), int(timeout_ns)):
                query = "cuEventQuery" if isinstance(target, model.Event) else "cuStreamQuery"
                return (self._api.address(query), target, step_ns, timeout_ns)
            case "cupti:cuptiActivityRegisterCallbacks", ():
                return (core().address("ss_requested"), core().address("ss_completed"))
            case "cuMemcpyBatchAsync", (
                model.Buffer() as to,
                model.Buffer() as source,
                int(size),
                model.CopyAttributes() as how,
                stream,
            ):
                cells = self._int_array(self.value(to), self.value(source), size, 0, 0)
                to_, source_, size_, index_, failed_ = (cells + 8 * number for number in range(5))
                return (to_, source_, size_, 1, self.value(how), index_, 1, failed_, stream)
            case _:
                return None

    def _handles_for(self, shared: bool) -> dict[model.Resource, int]:
        return self._shared.handles if shared else self._own

    def _params(self, args: model.KernelArgs, context: model.Context) -> int:
        if not args.duration_ns and args.started is None:
            return 0
        gpu = self._shared.contexts.device(context.device)
        cycles = args.duration_ns * gpu.clock_khz // 1_000_000
        return kernel_params(self._shared, cycles, 0 if args.started is None else self.word(args.started))

    def _full_grid_blocks(self, context: model.Context, threads: int) -> int:
        gpu = self._shared.contexts.device(context.device)
        return gpu.sms * (gpu.threads_per_sm // threads)

    def _int_array(self, *values: int) -> int:
        cells: NDArray[np.uint64] = np.array(values, dtype=np.uint64)
        self._shared.keep.append(cells)
        return int(cells.ctypes.data)

    def _make(self, resource: model.Buffer | model.Stream | model.Event | model.Graph | model.CopyAttributes) -> int:
        if isinstance(resource, model.CopyAttributes):
            return self._attributes(resource)
        self._shared.contexts.use(resource.context)
        try:
            match resource:
                case model.Buffer():
                    return self._buffer(resource)
                case model.Stream(kind=kind):
                    flags = _STREAM_NON_BLOCKING if kind is model.StreamKind.NON_BLOCKING else 0
                    return self._keep(self._api.call("cuStreamCreate", flags))
                case model.Event(timing=timing, blocking=blocking):
                    flags = (0 if timing else _EVENT_DISABLE_TIMING) | (_EVENT_BLOCKING_SYNC if blocking else 0)
                    return self._keep(self._api.call("cuEventCreate", flags))
                case model.Graph():
                    return self._graph(resource)
        except CudaError as error:
            raise setup_error(error, f"{type(resource).__name__.lower()} {resource.name}") from error

    def _keep(self, handle: Any) -> int:
        self._shared.keep.append(handle)
        return int(handle)

    def _buffer(self, buffer: model.Buffer) -> int:
        if buffer.space is model.Space.PINNED:
            address = int(self._api.call("cuMemHostAlloc", buffer.nbytes, _HOST_ALLOC_PORTABLE_MAPPED))
            ctypes.memset(address, 1, buffer.nbytes)
            return address
        self._shared.bytes_taken += buffer.nbytes
        if self._shared.bytes_taken > self._shared.options.max_memory:
            limit = self._shared.options.max_memory >> 20
            raise Unsupported(f"the buffers need more than the session's limit of {limit} MiB of GPU memory")
        address = int(self._api.call("cuMemAlloc", buffer.nbytes))
        self._api.call("cuMemsetD8", address, 1, buffer.nbytes)
        self._api.call("cuCtxSynchronize")
        return address

    def _graph(self, graph: model.Graph) -> int:
        launch = c_function(self._api.address("cuLaunchKernel"))
        function = self._shared.function(model.Kernel("empty", graph.context))
        self._shared.contexts.use(graph.context)
        stream = self._api.call("cuStreamCreate", _STREAM_NON_BLOCKING)
        thread_local = self._api.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._api.call("cuStreamBeginCapture", stream, thread_local)
        for _ in range(graph.nodes):
            status = launch(function, 1, 1, 1, 1, 1, 1, 0, int(stream), 0, 0)
            if status != 0:
                raise CudaError("cuLaunchKernel", status, self._api.text(status))
        template = self._api.call("cuStreamEndCapture", stream)
        self._shared.keep += [stream, template]
        if not graph.instantiated:
            return int(template)
        return self._keep(self._api.call("cuGraphInstantiate", template, 0))

    def _memory_struct(self, kind: model.MemoryStructKind, index: int) -> int:
        """The address of a structure that names memory of GPU number ``index``. Raises Unsupported."""
        gpu = self._shared.contexts.device(index)
        attribute, what = _NEEDED[kind]
        number = getattr(self._api.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}_SUPPORTED")
        if not int(self._api.call("cuDeviceGetAttribute", number, gpu.handle)):
            raise Unsupported(f"{gpu.name} has no {what}")
        made = ctypes.create_string_buffer(memory_struct(kind, gpu.ordinal))
        self._shared.keep.append(made)
        return ctypes.addressof(made)

    def _attributes(self, wanted: model.CopyAttributes) -> int:
        """The address of a CUmemcpyAttributes: access order, two locations of two ints each, flags."""
        if not self._api.has("cuMemcpyBatchAsync"):
            raise Unsupported("this driver has no cuMemcpyBatchAsync: install a driver for CUDA 12.8 or newer")
        flags = _PREFER_OVERLAP if wanted.prefer_overlap else 0
        fields = [_ORDER_STREAM, _LOCATION_NONE, 0, _LOCATION_NONE, 0, flags]
        block: NDArray[np.int32] = np.array(fields, dtype=np.int32)
        self._shared.keep.append(block)
        return int(block.ctypes.data)
