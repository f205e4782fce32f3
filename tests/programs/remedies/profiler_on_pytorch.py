"""profiler-on in PyTorch: operations before a profile, after it, and after one that detached CUPTI.

python -m remedies.profiler_on_pytorch    (in tests/programs)

Timed: the call of a small operation, one after the other. The profile itself is not part of it.
"""

from __future__ import annotations

import os
import statistics
from time import perf_counter_ns

import torch
from remedies.measured import ROUNDS, median_us, report, require

OPERATIONS = 4_000
# PyTorch detaches CUPTI in a thread of its own, so that a profile soon after another one may have no events.
TRIES = 5


def main() -> None:
    """Operations without a profiler, and after profiles that leave CUPTI attached and that detach it."""
    counter = torch.zeros(1, device="cuda")
    cuda_only = [torch.profiler.ProfilerActivity.CUDA]

    def operation_us() -> float:
        def one() -> int:
            begin = perf_counter_ns()
            counter.add_(1)
            took = perf_counter_ns() - begin
            torch.cuda.synchronize()
            return took

        return median_us(one, OPERATIONS)

    def profile() -> int:
        with torch.profiler.profile(activities=cuda_only, acc_events=True) as found:
            counter.add_(1)
            torch.cuda.synchronize()
        return len(found.events())

    def profile_with_events() -> None:
        require(any(profile() for _ in range(TRIES)), f"one of {TRIES} profiles has events")

    def profile_attached() -> None:
        os.environ["TEARDOWN_CUPTI"] = "0"
        profile_with_events()

    def profile_detached() -> None:
        # remedy detached
        # Before the program makes its first profile, and only if it
        # launches no CUDA graphs.
        os.environ["TEARDOWN_CUPTI"] = "1"
        # end
        # It detaches what the profile before left attached, and has no events for that reason.
        profile()
        profile_with_events()

    rounds = []
    for _ in range(ROUNDS + 1):
        without = operation_us()
        profile_attached()
        before = operation_us()
        profile_detached()
        rounds.append((without, before, operation_us()))
    without, before, after = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
    report("the call of an operation after a profile", before, {"detached": after}, without)


if __name__ == "__main__":
    main()
