"""Report 5 as a program: a pageable copy on the default stream waits for an event, and launches wait for the copy.

python default_stream_gate.py ROUNDS

The thread that launches is the one that should open the gate, so that this would hang; a timer opens it after 100 ms.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time

from driver import HOST_FUNCTION, NO_TIMING, Driver, pageable_memory

BYTES = ctypes.c_size_t(4)
DEFAULT_STREAM = ctypes.c_void_p()
GATE_S = 0.1
BEFORE_LAUNCH_S = 0.02
KERNEL_NS = 2_000


def main(rounds: int) -> None:
    """Close the gate, copy behind it, and launch beside the copy, ``rounds`` times."""
    driver = Driver()
    context = driver.primary()
    launch, gated, unrelated = context.kernel(), context.stream(), context.stream()
    source, target = context.device_memory(BYTES.value), pageable_memory(BYTES.value)
    event = ctypes.c_void_p()
    driver("cuEventCreate", ctypes.byref(event), NO_TIMING)
    launch(KERNEL_NS, unrelated)
    driver("cuCtxSynchronize")
    opened = threading.Event()
    gate = HOST_FUNCTION(lambda _: opened.wait())

    def copy() -> None:
        context.make_current()
        driver("cuMemcpyDtoHAsync_v2", target, source, BYTES, DEFAULT_STREAM)

    for _ in range(rounds):
        opened.clear()
        timer = threading.Timer(GATE_S, opened.set)
        driver("cuLaunchHostFunc", gated, gate, None)
        driver("cuEventRecord", event, gated)
        driver("cuStreamWaitEvent", DEFAULT_STREAM, event, 0)
        copies = threading.Thread(target=copy, name="copy")
        timer.start()
        copies.start()
        time.sleep(BEFORE_LAUNCH_S)
        launch(KERNEL_NS, unrelated)
        copies.join()
        timer.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
