"""A second process that computes on the GPU, for the programs beside it.

python -m remedies.other_process    (in tests/programs)

It ends with its standard input, with the process that started it, and after LIMIT_S.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driver import NO_TIMING, Driver
from remedies.measured import require

KERNEL_NS = 20_000_000
LIMIT_S = 15
PR_SET_PDEATHSIG = 1


@contextmanager
def other_process() -> Iterator[None]:
    """A second process that computes without a pause until the block ends."""
    command = [sys.executable, "-m", "remedies.other_process"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        require(process.stdout is not None and process.stdout.read(1), "the second process computes")
        yield


def main() -> None:
    """Run kernels without a pause, and write one byte once they run."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    signal.alarm(LIMIT_S)
    driver = Driver()
    context = driver.primary()
    launch, stream = context.kernel(), context.stream()
    ended = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in ended:
        driver("cuEventCreate", ctypes.byref(event), NO_TIMING)
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        launch(KERNEL_NS, stream)
        driver("cuEventRecord", ended[number % 2], stream)
        if number:
            driver("cuEventSynchronize", ended[(number - 1) % 2])
        if number == 1:
            os.write(sys.stdout.fileno(), b"1")
        number += 1


if __name__ == "__main__":
    main()
