"""Cost of the screen of a watched program, beside the stand-ins for libcuda and libcupti: CPU of its threads, bytes.

    python tests/benchmarks/bench_watch_screen.py [--seconds 20] [--size 160x48] [--threads 4] [--check]

The program has threads that launch 54 kernels each step and then wait 2 ms for the GPU: each makes some 20 000 calls
and 300 slow calls a second. Drawing and reading are different threads of the screen's process. The reference is the
bare widget of bench_screen.py, measured before and after. With --check it exits 1 where a figure is above its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "app"), str(ROOT / "probes")]

from benchmarks.bench_screen import BARE_APP, SETTLE_S, Screen  # noqa: E402
from factories.stand_in import StandIn  # noqa: E402
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE  # noqa: E402

# CPU of drawing as a multiple of the bare widget's; of reading as a share of a core.
DRAW_RATIO, READ_SHARE = 2.0, 0.12
KB_PER_S = 30.0
STARTED_S = 4.0
PROGRAM = """
import ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
for name in ("stand_in_length", "stand_in_kernel_length"):
    getattr(library, name).argtypes = [ctypes.c_uint64]
library.cuInit(0)
target = ctypes.create_string_buffer(4)
def work():
    while True:
        library.stand_in_length(0)
        library.stand_in_kernel_length(30_000)
        for _ in range(54):
            library.cuLaunchKernel(ctypes.c_char_p(b"_Z3addPf"), 1, 1, 1, 1, 1, 1, 0, ctypes.c_void_p(7), None, None)
        library.stand_in_length(2_000_000)
        library.cuMemcpyDtoHAsync_v2(target, ctypes.c_uint64(1 << 40), ctypes.c_size_t(4), ctypes.c_void_p(7))
for _ in range(int(sys.argv[2])):
    threading.Thread(target=work, daemon=True).start()
for step in range(1 << 60):
    time.sleep(0.05)
    print("step", step, flush=True)
"""


def threads_cpu_s(pid: int) -> tuple[float, float]:
    """CPU time of the main thread, which draws, and of all others."""
    tick = os.sysconf("SC_CLK_TCK")
    main = others = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / tick
        if int(task.name) == pid:
            main = seconds
        else:
            others += seconds
    return main, others


def bare_share(columns: int, rows: int, seconds: float) -> float:
    """CPU of the bare widget as a share of a core."""
    screen = Screen([sys.executable, "-c", BARE_APP], columns, rows)
    screen.read(SETTLE_S + 1)
    begun = screen.cpu_s()
    screen.read(seconds)
    used = screen.cpu_s() - begun
    os.write(screen.fd, b"\x11")
    return used / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    columns, rows = map(int, chosen.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        stand_in = StandIn.build(Path(folder) / "stand_in")
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        before = bare_share(columns, rows, chosen.seconds / 2)
        changes = {CUPTI_VARIABLE: str(stand_in.folder / "libcupti.so.13"), "TMPDIR": folder}
        words = [
            "watch",
            "--",
            sys.executable,
            str(program),
            str(stand_in.folder / "libcuda.so.1"),
            str(chosen.threads),
        ]
        screen = Screen([sys.executable, "-m", "stallscope", *words], columns, rows, changes)
        screen.wait_for(b"cuLaunchKernel", 60)
        screen.read(STARTED_S)
        begun = threads_cpu_s(screen.pid)
        written = len(screen.read(chosen.seconds))
        draw, read = (
            (end - start) / chosen.seconds for start, end in zip(begun, threads_cpu_s(screen.pid), strict=True)
        )
        os.write(screen.fd, b"qy")
        # It ends meanwhile, and its terminal with it.
        with contextlib.suppress(OSError):
            screen.read(5)
        after = bare_share(columns, rows, chosen.seconds / 2)
    bare = (before + after) / 2
    kilobytes = written / chosen.seconds / 1000
    print(f"bare widget     {bare:6.1%} of a core ({before:.1%} before, {after:.1%} after)")
    print(f"drawing         {draw:6.1%} of a core, {draw / bare:.2f} times the bare widget (limit {DRAW_RATIO:g})")
    print(f"reading         {read:6.1%} of a core (limit {READ_SHARE:.0%})")
    print(f"to the terminal {kilobytes:6.1f} kB/s (limit {KB_PER_S:g})")
    if chosen.check and (draw > DRAW_RATIO * bare or read > READ_SHARE or kilobytes > KB_PER_S):
        sys.exit(1)


if __name__ == "__main__":
    main()
