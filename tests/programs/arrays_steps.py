"""Many small kernels of CuPy on a stream of its own, whose result is checked in each step."""

from __future__ import annotations

import cupy
from step_times import run_steps

VALUES, ADDITIONS = 1 << 16, 100


def main() -> None:
    """Add."""
    with cupy.cuda.Stream(non_blocking=True):
        ones = cupy.ones(VALUES, dtype=cupy.float32)

        def step() -> None:
            values = ones
            for _ in range(ADDITIONS):
                values = values + ones
            found = float(values.sum())
            if found != VALUES * (ADDITIONS + 1):
                raise SystemExit(f"The sum is {found:.0f}, and should be {VALUES * (ADDITIONS + 1)}.")

        run_steps(step)


if __name__ == "__main__":
    main()
