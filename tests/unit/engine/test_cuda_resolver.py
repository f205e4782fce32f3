"""The CUDA side against a made-up driver: what is asked of it, and what its refusals become."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.cuda.api import DEVICE_UNAVAILABLE, OUT_OF_MEMORY, Api, CudaError, setup_error
from stallprobes.engine.cuda.devices import Contexts, CudaDevice
from stallprobes.engine.cuda.memory_structs import memory_struct
from stallprobes.engine.cuda.resolver import CudaResolver, SessionResources
from stallprobes.engine.op_table import compile_program
from stallprobes.errors import EXIT_ENGINE, BackendError, Unsupported
from stallprobes.model import (
    GREEN,
    MIB,
    MS,
    PEER,
    PRIMARY,
    Buffer,
    CopyAttributes,
    Event,
    Kernel,
    KernelArgs,
    Load,
    MemoryStruct,
    MemoryStructKind,
    Op,
    Space,
    Stream,
    Word,
    null_stream,
)

GPU = CudaDevice(0, 0, "made up", "0", sms=132, threads_per_sm=2048, clock_khz=1_980_000)


class FakeApi(Api):
    """Remembers what was called; memory is the machine's own, so that the resolver may touch it."""

    def __init__(self, refuse: dict[str, int] | None = None, missing: tuple[str, ...] = ()) -> None:
        self.version = 13_000
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self._refuse = refuse or {}
        self._missing = missing
        self._maps: list[mmap.mmap] = []
        self._next = 1000

    def call(self, function: str, *args: object) -> Any:
        self.calls.append((function, args))
        if function in self._refuse:
            raise CudaError(function, self._refuse[function], "made up")
        if function == "cuMemHostAlloc":
            block = mmap.mmap(-1, int(str(args[0])))
            self._maps.append(block)
            return ctypes.addressof(ctypes.c_char.from_buffer(block))
        self._next += 1
        return self._next

    def address(self, function: str) -> int:
        if function in self._missing:
            raise Unsupported(f"no {function}")
        return 77

    def named(self, function: str) -> list[tuple[object, ...]]:
        return [args for name, args in self.calls if name == function]


def resolver(api: FakeApi, options: Options | None = None, gpus: int = 1) -> CudaResolver:
    contexts = Contexts(api, [GPU] * gpus)
    contexts.handle(PRIMARY)
    return CudaResolver(SessionResources(api, contexts, options or Options()))


def test_too_little_gpu_memory_is_unsupported_with_what_it_was_for() -> None:
    exclusive = setup_error(CudaError("cuDevicePrimaryCtxRetain", DEVICE_UNAVAILABLE, "unavailable"), "the context")
    assert isinstance(exclusive, Unsupported)
    assert "exclusive-process mode" in exclusive.reason
    full = resolver(FakeApi(refuse={"cuMemAlloc": OUT_OF_MEMORY}))
    with pytest.raises(Unsupported, match="too little GPU memory for buffer source"):
        full.value(Buffer("source", Space.DEVICE, MIB))


def test_a_session_takes_no_more_memory_than_it_may() -> None:
    small = resolver(FakeApi(), Options(max_memory=3 * MIB))
    small.value(Buffer("one", Space.DEVICE, 2 * MIB))
    with pytest.raises(Unsupported, match="3 MiB"):
        small.value(Buffer("two", Space.DEVICE, 2 * MIB))


def test_any_other_refusal_is_a_failure_with_the_drivers_words() -> None:
    error = setup_error(CudaError("cuStreamCreate", 999, "unknown"), "stream own")
    assert isinstance(error, BackendError)
    assert error.exit_code == EXIT_ENGINE
    assert "cuStreamCreate returned 999 (unknown)" in error.sentence


def test_a_second_gpu_that_is_not_there_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="one GPU: this needs two"):
        resolver(FakeApi()).value(PEER)


def test_a_green_context_without_a_driver_for_it_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"12\.4"):
        resolver(FakeApi(missing=("cuGreenCtxCreate",))).value(GREEN)


def test_shared_names_are_made_once_and_own_ones_for_each_probe() -> None:
    api = FakeApi()
    contexts = Contexts(api, [GPU])
    contexts.handle(PRIMARY)
    shared = SessionResources(api, contexts, Options())
    one, other = CudaResolver(shared), CudaResolver(shared)
    together, own = Stream("X", shared=True), Stream("own")
    assert one.value(together) == other.value(together)
    assert one.value(own) != other.value(own)
    assert one.value(own) == one.value(own)
    assert one.value(null_stream()) == 0


def test_events_are_timed_only_where_asked() -> None:
    api = FakeApi()
    made = resolver(api)
    made.value(Event("plain"))
    made.value(Event("timed", timing=True))
    assert api.named("cuEventCreate") == [(2,), (0,)]


def test_a_thread_sleeps_for_a_blocking_event() -> None:
    api = FakeApi()
    made = resolver(api)
    made.value(Event("blocking", blocking=True))
    made.value(Event("both", timing=True, blocking=True))
    assert api.named("cuEventCreate") == [(3,), (1,)]


@pytest.mark.parametrize(("target", "query"), [(Event("end"), "cuEventQuery"), (Stream("own"), "cuStreamQuery")])
def test_a_poll_calls_the_query_of_its_target(target: Event | Stream, query: str) -> None:
    api = FakeApi(missing=(query,))
    with pytest.raises(Unsupported, match=query):
        resolver(api).lower(Op("native:poll", (target, 5, MS)))
    assert resolver(FakeApi()).lower(Op("native:poll", (target, 5, MS))) == (77, target, 5, MS)


def test_a_launch_has_the_c_arguments_and_a_spin_its_cycles() -> None:
    made = resolver(FakeApi())
    stream, started = Stream("own"), Word("started", mapped=True)
    kernel = Kernel("spin")
    lowered = made.lower(Op("cuLaunchKernel", (kernel, 16, 256, stream, KernelArgs(50 * MS, started))))
    assert lowered is not None
    assert tuple(lowered[:9]) == (kernel, 16, 1, 1, 256, 1, 1, 0, stream)
    params = lowered[9]
    assert isinstance(params, int)
    pointers = (ctypes.c_uint64 * 2).from_address(params)
    cycles, word = (ctypes.c_uint64.from_address(pointer).value for pointer in pointers)
    assert cycles == 50 * GPU.clock_khz
    assert word == made.word(started)


def test_no_blocks_are_as_many_as_fill_the_gpu() -> None:
    lowered = resolver(FakeApi()).lower(Op("cuLaunchKernel", (Kernel("spin"), 0, 256, Stream("own"), KernelArgs(MS))))
    assert lowered is not None
    assert lowered[1] == 132 * 8


def test_a_batch_copy_carries_its_flag() -> None:
    made = resolver(FakeApi())
    source, target = (Buffer(name, Space.DEVICE, MIB) for name in ("source", "target"))
    stream = Stream("own")
    lowered = made.lower(Op("cuMemcpyBatchAsync", (target, source, MIB, CopyAttributes(True), stream)))
    assert lowered is not None
    assert len(lowered) == 9
    sizes, attributes = lowered[2], lowered[4]
    assert isinstance(sizes, int)
    assert isinstance(attributes, int)
    assert ctypes.c_uint64.from_address(sizes).value == MIB
    assert list((ctypes.c_int32 * 6).from_address(attributes)) == [1, 0, 0, 0, 0, 1]


class Attributes:
    """The device attributes that a made-up driver knows, each by its name."""

    class CUdevice_attribute:
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = "mapping"
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = "pools"


class MappingApi(FakeApi):
    """A made-up driver of a GPU that has one of the two features."""

    driver = Attributes

    def __init__(self, feature: str) -> None:
        super().__init__()
        self.feature = feature

    def call(self, function: str, *args: object) -> Any:
        if function == "cuDeviceGetAttribute":
            return int(args[0] == self.feature)
        return super().call(function, *args)


@pytest.mark.parametrize(
    ("kind", "feature", "words"),
    [
        (MemoryStructKind.ALLOCATION, "mapping", "no virtual memory management"),
        (MemoryStructKind.ACCESS, "mapping", "no virtual memory management"),
        (MemoryStructKind.POOL, "pools", "no memory pools"),
    ],
)
def test_memory_is_named_on_a_gpu_that_can_map_it(kind: MemoryStructKind, feature: str, words: str) -> None:
    known = resolver(MappingApi(feature))
    at, made = known.value(MemoryStruct(kind)), memory_struct(kind, GPU.ordinal)
    assert ctypes.string_at(at, len(made)) == made
    with pytest.raises(Unsupported, match=words):
        resolver(MappingApi("neither")).value(MemoryStruct(kind))


@pytest.mark.parametrize("entry", ["map-unmap", "map-unmap-pieces", "create-release"])
def test_mapping_calls_have_the_c_arguments(entry: str) -> None:
    """cuMemCreate(handle, size, properties, flags), cuMemMap(address, size, offset, handle, flags), and so on."""
    made = resolver(MappingApi("mapping"))
    program = entries()[entry].probe().program
    table = compile_program(program, made)
    for row, op in zip(table.ops, program.ops, strict=True):
        loads = {number for number, arg in enumerate(op.args) if isinstance(arg, Load)}
        assert {number for number in range(len(op.args)) if row.load_mask & (1 << number)} == loads
        assert len(op.args) == {"cuMemCreate": 4, "cuMemMap": 5, "cuMemSetAccess": 4, "cuMemUnmap": 2}.get(op.fn, 1)
    sizes = {row.arguments[1] for row in table.ops if row.load_mask == 1 and row.arguments[1]}
    assert sizes <= {64 * MIB, 4 * MIB}


def test_mapped_words_begin_at_zero_and_lie_apart() -> None:
    made = resolver(FakeApi())
    one, other = (made.word(Word(name, mapped=True)) for name in ("one", "other"))
    assert abs(one - other) >= 64
    assert ctypes.c_int64.from_address(one).value == 0
