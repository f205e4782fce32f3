"""Writes the lines of all remedies to the package, as ``stallprobes/patterns/remedies/PATTERN.toml``.

python tests/programs/remedies/package.py [--measure]

With --measure every program that this machine can run is run on its GPUs, and the latencies are written with the lines;
where a remedy does not end the stall, they are not, and the command exits 1. Latencies of unchanged lines are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from factories.remedy_programs import PACKAGED, NotRunnable, ProgramResult, measure, packaged, programs


def _machine() -> str:
    """The GPU with its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    name, driver = done.stdout.splitlines()[0].split(", ")
    return f"{name}, driver {driver}"


def _measured() -> tuple[dict[Path, ProgramResult], bool]:
    """The result of each program that can be run, and whether every remedy ended its stall."""
    results, good = {}, True
    with tempfile.TemporaryDirectory() as folder:
        for program in programs():
            try:
                result = measure(program, Path(folder))
            except NotRunnable as reason:
                sys.stdout.write(f"{program.path.name}: not run: {reason}\n")
                continue
            except (AssertionError, subprocess.SubprocessError) as error:
                sys.stdout.write(f"{program.path.name}: FAILED: {error}\n")
                good = False
                continue
            after = {}
            for variant, took_us in result.after_us.items():
                gone = result.gone(variant)
                good &= gone
                if gone:
                    after[variant] = took_us
                sys.stdout.write(
                    f"{program.path.name} {variant}: {result.victim} {result.before_us} us before, {took_us} us after"
                    f"{'' if gone else ': THE STALL IS NOT GONE'}\n"
                )
            results[program.path] = replace(result, after_us=after)
    return results, good


def main(arguments: list[str]) -> int:
    """Write all files; 1 if a program failed or a stall is not gone."""
    results, good = _measured() if "--measure" in arguments else ({}, True)
    contents = packaged(results, _machine() if results else "")
    PACKAGED.mkdir(exist_ok=True)
    for old in PACKAGED.glob("*.toml"):
        if old.stem not in contents:
            old.unlink()
    for pattern, content in contents.items():
        (PACKAGED / f"{pattern}.toml").write_text(content, encoding="utf-8")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
