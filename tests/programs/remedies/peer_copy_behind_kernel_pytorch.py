"""peer-copy-behind-kernel in PyTorch: a peer copy beside one that waits for a kernel. Needs two GPUs.

python -m remedies.peer_copy_behind_kernel_pytorch    (in tests/programs)

PyTorch enables peer access at its first copy between two GPUs, so the staged copies are made before that, by the
driver. Timed: the copy beside, until it is complete.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter_ns

import torch
from driver import Driver
from remedies.measured import median_us, report, require

SIZE = 1 << 20
KERNEL_NS = 20_000_000


class Route:
    """Buffers of one copy, its streams on both GPUs, and what the relay needs."""

    def __init__(self) -> None:
        self.source = torch.full((SIZE,), 7, dtype=torch.uint8, device="cuda:0")
        self.target = torch.zeros(SIZE, dtype=torch.uint8, device="cuda:1")
        self.pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
        self.out, self.into = torch.cuda.Stream("cuda:0"), torch.cuda.Stream("cuda:1")
        self.ready = torch.cuda.Event()


def main() -> None:
    """Copy in each way beside a copy of the same kind."""
    driver = Driver()
    other, context = driver.primary(1), driver.primary(0)
    launch = context.kernel()
    behind, beside = Route(), Route()

    def peer_copy(copy: Callable[[Route], None]) -> int:
        for route in (behind, beside):
            route.target.zero_()
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        context.make_current()
        launch(KERNEL_NS, ctypes.c_void_p(behind.out.cuda_stream))
        copy(behind)
        begin = perf_counter_ns()
        copy(beside)
        beside.out.synchronize()
        beside.into.synchronize()
        took = perf_counter_ns() - begin
        behind.out.synchronize()
        behind.into.synchronize()
        for route in (behind, beside):
            require((route.target == 7).all(), "the data were copied")
        return took

    def staged(route: Route) -> None:
        target, source = ctypes.c_uint64(route.target.data_ptr()), ctypes.c_uint64(route.source.data_ptr())
        stream = ctypes.c_void_p(route.out.cuda_stream)
        driver("cuMemcpyPeerAsync", target, other.handle, source, context.handle, ctypes.c_size_t(SIZE), stream)

    def relay(route: Route) -> None:
        source, target, pinned = route.source, route.target, route.pinned
        out, into, ready = route.out, route.into, route.ready
        # remedy host-relay
        # ``out`` is a stream of the source's GPU, ``into`` one of the
        # target's. ``pinned`` is made once, with pin_memory=True.
        with torch.cuda.stream(out):
            pinned.copy_(source, non_blocking=True)
            ready.record(out)
        with torch.cuda.stream(into):
            into.wait_event(ready)
            target.copy_(pinned, non_blocking=True)
        # end

    def direct(route: Route) -> None:
        source, target, out, into = route.source, route.target, route.out, route.into
        # remedy direct
        # PyTorch enables peer access itself, and orders a copy after the
        # current streams of both GPUs: use a stream of each.
        with torch.cuda.stream(out), torch.cuda.stream(into):
            target.copy_(source, non_blocking=True)
        # end

    before = median_us(lambda: peer_copy(staged))
    after = {"host-relay": median_us(lambda: peer_copy(relay))}
    if torch.cuda.can_device_access_peer(0, 1) and torch.cuda.can_device_access_peer(1, 0):
        after["direct"] = median_us(lambda: peer_copy(direct))
    report("the peer copy", before, after)


if __name__ == "__main__":
    main()
