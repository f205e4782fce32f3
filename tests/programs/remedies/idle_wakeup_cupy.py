"""idle-wakeup in CuPy: an operation after 0.3 s without a call.

python -m remedies.idle_wakeup_cupy    (in tests/programs)

Timed: the call of the operation. That of the small one, which is made before the work arrives, is not part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns

import cupy
from remedies.measured import median_us, report, require

# On H200s a call after 0.1 s takes as long as one after 5 s.
IDLE_S = 0.3
FEW_ROUNDS = 6


def main() -> None:
    """Call after an idle time, with and without a small operation before it."""
    counter = cupy.zeros(())
    cupy.add(counter, 1, out=counter)
    cupy.cuda.Device().synchronize()

    def after_idle(warm: Callable[[], None], call: Callable[[], None]) -> int:
        time.sleep(IDLE_S)
        warm()
        begin = perf_counter_ns()
        call()
        took = perf_counter_ns() - begin
        cupy.cuda.Device().synchronize()
        return took

    def nothing() -> None:
        pass

    def count() -> None:
        cupy.add(counter, 1, out=counter)

    # remedy warmed
    # Once.
    scratch = cupy.zeros(())
    # end

    def warm() -> None:
        # remedy warmed
        # Just before the work arrives, in the thread that calls it.
        cupy.add(scratch, 1, out=scratch)
        # end

    before = median_us(lambda: after_idle(nothing, count), FEW_ROUNDS)
    after = median_us(lambda: after_idle(warm, count), FEW_ROUNDS)
    require(counter == 1 + 2 * (FEW_ROUNDS + 1), "the operations were made")
    report("the call of the operation", before, {"warmed": after})


if __name__ == "__main__":
    main()
