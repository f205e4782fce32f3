"""What ``watch`` says limits the kernels of trainings and decode loops, beside the truth, on a GPU.

The truths (tests/programs/limit_programs.py) follow from the operations and bytes of each step. Prints the limit of
each program with the counters, and what the program itself counts a second, as shares of an H200's peaks. Exits 1 if a
limit is wrong.

python tests/benchmarks/bench_program_limits.py [PROGRAM ...] [--seconds S] [--until UNIX_TIME]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

import limit_programs

# An H200's peaks: operations a second by unit, and bytes a second of its memory (data sheet, without sparsity).
PEAKS = {"tensor": 989.4e12, "fp32": 66.9e12, "dram": 4.8e12}
# What a program takes beside its --seconds (s).
START_S = 20.0
SHOWN = ("graphics", "sm_active", "occupancy", "dram", "tensor", "fp32", "fp64", "fp16", "integer")


def watched(name: str, seconds: float, kept: Path) -> tuple[list[dict[str, Any]], dict[str, float], str]:
    """The sequences that a watched program has, its rates, and its output with the report."""
    document = kept / f"{name}.json"
    document.unlink(missing_ok=True)
    watch = [sys.executable, "-m", "stallscope", "watch", "--headless", "--full", "--json", str(document), "--"]
    program = [sys.executable, limit_programs.__file__, name, str(seconds)]
    done = subprocess.run([*watch, *program], capture_output=True, text=True, timeout=seconds + 60, check=False)
    text = done.stdout + done.stderr
    (kept / f"{name}.txt").write_text(text)
    rates = next((line for line in text.splitlines() if line.startswith("RATE ")), "RATE {}")
    found = json.loads(document.read_text())["processes"] if document.exists() else []
    return [each for process in found for each in process["sequences"]], json.loads(rates[5:]), text


def main() -> int:
    """Watch each program; 1 if a limit is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    counts = {"right": 0, "not known": 0, "WRONG": 0, "no limit": 0}
    for name, program in limit_programs.PROGRAMS.items():
        if options.programs and name not in options.programs:
            continue
        if time.time() + options.seconds + START_S > options.until:
            print(f"{name}: no time left", flush=True)
            continue
        sequences, rates, text = watched(name, options.seconds, options.keep)
        first = max(sequences, key=lambda each: float(each["gpu"]["share"]), default=None)
        limit = first and first["limit"]
        if first is None or limit is None:
            word = "no limit"
            print(f"{name:20} no limit; rates {rates}\n{text[-1500:]}", flush=True)
        else:
            said = limit["limit"]
            word = "right" if said in program.limits else "not known" if said in ("unknown", "shared") else "WRONG"
            counters = ", ".join(f"{each} {limit[each]:.2f}" for each in SHOWN)
            print(f"{name:20} {said} {word} (truth {' or '.join(program.limits)}: {program.why})")
            print(f"  {first['verdict']}; {limit['samples']} samples, {limit['basis']}: {counters}", flush=True)
        counts[word] += 1
        if rates:
            own = {program.unit: rates["operations"] / PEAKS[program.unit], "dram": rates["read"] / PEAKS["dram"]}
            shown = ", ".join(f"{unit} {share:.2f}" for unit, share in own.items())
            print(f"  {rates['steps']:.2f} steps/s, by its own count at least {shown}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(counts["WRONG"] + counts["no limit"] > 0)


if __name__ == "__main__":
    sys.exit(main())
