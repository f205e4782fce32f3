"""Memory of the screen over ten minutes: 30 frames a second, an aggressor switched each second.

    python tests/benchmarks/bench_soak.py [--seconds 600] [--size 160x48] [--gpu GPU] [--check]

The memory of the screen's process and of its engine is printed each minute. With --check it exits 1 where one of them
ends more than 10 % above its memory after the first minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_screen import Screen, fast_settings

MORE = 1.1
FIRST_S = 60.0


def memory_mb(pid: int) -> float:
    """The resident memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


def main() -> int:
    """Measure and print; 1 where memory grew and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--gpu")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    columns, rows = (int(part) for part in asked.size.split("x"))
    where = ["--gpu", asked.gpu, "--allow-shared"] if asked.gpu is not None else ["--sim", "h200"]
    with fast_settings() as settings:
        arguments = [sys.executable, "-m", "stallscope", *where]
        screen = Screen(arguments, columns, rows, changes={"STALLSCOPE_SETTINGS": settings})
        screen.wait_for(b" old")
        engine = screen.engine()
        screen.press("2b")
        begun = time.monotonic()
        first: tuple[float, float] | None = None
        cpu, written, next_s = screen.cpu_s(), 0, FIRST_S
        while (passed := time.monotonic() - begun) < asked.seconds:
            screen.press("1")
            written += len(screen.read(1.0))
            if passed >= next_s:
                now = (memory_mb(screen.pid), memory_mb(engine))
                print(f"after {passed:4.0f} s: screen {now[0]:.1f} MB, engine {now[1]:.1f} MB", flush=True)
                first, next_s = first or now, next_s + FIRST_S
        took = time.monotonic() - begun
        last = (memory_mb(screen.pid), memory_mb(engine))
        cpu = 100 * (screen.cpu_s() - cpu) / took
        screen.end()
    print(f"after {took:4.0f} s: screen {last[0]:.1f} MB, engine {last[1]:.1f} MB; {cpu:.1f} % of a core, ", end="")
    print(f"{written / took / 1000:.1f} kB/s")
    if first is None:
        print("too short: the memory after the first minute is what counts")
        return int(asked.check)
    growth = [now / before for before, now in zip(first, last, strict=True)]
    print(f"since the first minute: screen ×{growth[0]:.3f}, engine ×{growth[1]:.3f}; limit ×{MORE}")
    return int(asked.check and max(growth) > MORE)


if __name__ == "__main__":
    raise SystemExit(main())
