"""Writes the lines of all remedies to the package, as ``stallprobes/patterns/remedies/PATTERN.toml``.

python tests/programs/remedies/package.py [--measure]

With --measure every program that this machine can run is run on its GPUs, and the latencies are written with the lines;
where a program fails or a remedy does not end the stall, its lines have none, and the command exits 1. Latencies of
unchanged lines that were not measured are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from factories.remedy_programs import (
    PACKAGED,
    NotRunnable,
    ProgramResult,
    build_all,
    measure,
    packaged,
    programs,
)


def _machine() -> str:
    """The GPU with its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    name, driver = done.stdout.splitlines()[0].split(", ")
    return f"{name}, driver {driver}"


def _measured() -> tuple[dict[Path, ProgramResult | None], bool]:
    """The result of each program that can be run, None if it failed, and whether every remedy ended its stall."""
    results: dict[Path, ProgramResult | None] = {}
    good = True
    with tempfile.TemporaryDirectory() as folder:
        build_all(Path(folder))
        for program in programs():
            # A run that is ended from outside leaves what it has found.
            sys.stdout.flush()
            try:
                result = measure(program, Path(folder))
            except KeyboardInterrupt:
                sys.stdout.write("interrupted: the programs that follow keep what they had\n")
                return results, False
            except NotRunnable as reason:
                sys.stdout.write(f"{program.path.name}: not run: {reason}\n")
                continue
            except (AssertionError, subprocess.SubprocessError) as error:
                sys.stdout.write(f"{program.path.name}: FAILED: {error}\n")
                results[program.path], good = None, False
                continue
            for variant, took_us in result.after_us.items():
                gone = result.gone(variant)
                good &= gone
                sys.stdout.write(
                    f"{program.path.name} {variant}: {result.victim} {result.before_us} us before, {took_us} us after"
                    f"{'' if gone else ': THE STALL IS NOT GONE'}\n"
                )
            results[program.path] = result
    return results, good


def main(arguments: list[str]) -> int:
    """Write all files; 1 if a program failed or a stall is not gone."""
    measuring = "--measure" in arguments
    machine = _machine() if measuring else ""
    results, good = _measured() if measuring else ({}, True)
    contents = packaged(results, machine)
    PACKAGED.mkdir(exist_ok=True)
    for old in PACKAGED.glob("*.toml"):
        if old.stem not in contents:
            old.unlink()
    for pattern, content in contents.items():
        (PACKAGED / f"{pattern}.toml").write_text(content, encoding="utf-8")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
