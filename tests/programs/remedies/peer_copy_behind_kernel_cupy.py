"""peer-copy-behind-kernel in CuPy: a peer copy beside one that waits for a kernel. Needs two GPUs.

python -m remedies.peer_copy_behind_kernel_cupy    (in tests/programs)

The staged copies are made by the driver, before peer access is enabled. Timed: the copy beside, until it is complete.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter_ns

import cupy
import cupyx
from driver import Driver
from remedies.measured import median_us, report, require

SIZE = 1 << 20
KERNEL_NS = 20_000_000


class Route:
    """Buffers of one copy, its streams on both GPUs, and what the relay needs."""

    def __init__(self) -> None:
        with cupy.cuda.Device(1):
            self.target = cupy.zeros(SIZE, dtype=cupy.uint8)
            self.into = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.Device(0):
            self.source = cupy.full(SIZE, 7, dtype=cupy.uint8)
            self.out = cupy.cuda.Stream(non_blocking=True)
            self.ready = cupy.cuda.Event(disable_timing=True)
        self.pinned = cupyx.empty_pinned(SIZE, dtype=cupy.uint8)


def main() -> None:
    """Copy in each way beside a copy of the same kind."""
    driver = Driver()
    other, context = driver.primary(1), driver.primary(0)
    launch = context.kernel()
    behind, beside = Route(), Route()

    def peer_copy(copy: Callable[[Route], None]) -> int:
        for route in (behind, beside):
            with cupy.cuda.Device(1):
                route.target.fill(0)
        for number in (1, 0):
            cupy.cuda.Device(number).synchronize()
        context.make_current()
        launch(KERNEL_NS, ctypes.c_void_p(behind.out.ptr))
        copy(behind)
        begin = perf_counter_ns()
        copy(beside)
        beside.out.synchronize()
        beside.into.synchronize()
        took = perf_counter_ns() - begin
        behind.out.synchronize()
        behind.into.synchronize()
        for route in (behind, beside):
            with cupy.cuda.Device(1):
                require((route.target.get() == 7).all(), "the data were copied")
        return took

    def staged(route: Route) -> None:
        target, source = ctypes.c_uint64(route.target.data.ptr), ctypes.c_uint64(route.source.data.ptr)
        stream = ctypes.c_void_p(route.out.ptr)
        driver("cuMemcpyPeerAsync", target, other.handle, source, context.handle, ctypes.c_size_t(SIZE), stream)

    def relay(route: Route) -> None:
        source, target, pinned = route.source, route.target, route.pinned
        out, into, ready = route.out, route.into, route.ready
        # remedy host-relay
        # ``out`` is a stream of the source's GPU, ``into`` one of the
        # target's. ``pinned`` is made once, with cupyx.empty_pinned.
        with cupy.cuda.Device(0):
            source.get(stream=out, out=pinned, blocking=False)
            ready.record(out)
        with cupy.cuda.Device(1):
            into.wait_event(ready)
            target.set(pinned, stream=into)
        # end

    def enable_peer_access() -> None:
        # remedy direct
        # Once, where deviceCanAccessPeer returns 1.
        for this, other in ((0, 1), (1, 0)):
            with cupy.cuda.Device(this):
                cupy.cuda.runtime.deviceEnablePeerAccess(other)
        # end

    def direct(route: Route) -> None:
        source, target, out = route.source, route.target, route.out
        # fmt: off
        # remedy direct
        cupy.cuda.runtime.memcpyPeerAsync(
            target.data.ptr, 1, source.data.ptr, 0, source.nbytes, out.ptr
        )
        # end
        # fmt: on

    before = median_us(lambda: peer_copy(staged))
    after = {"host-relay": median_us(lambda: peer_copy(relay))}
    can_access = cupy.cuda.runtime.deviceCanAccessPeer
    if can_access(0, 1) and can_access(1, 0):
        enable_peer_access()
        after["direct"] = median_us(lambda: peer_copy(direct))
    report("the peer copy", before, after)


if __name__ == "__main__":
    main()
