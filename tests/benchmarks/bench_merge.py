"""Cost of `merge`, `compare` and `show` on real checks: CPU time and peak memory of the whole command.

    python tests/benchmarks/bench_merge.py [--hosts 60] [--check]

The recorded checks of two H200 are copied under other host names; --hosts is how many. With --check it exits 1 above
0.5 s of CPU per host or 400 MB for a merge, or 1 s of CPU or 300 MB for `compare` and `show`. The time of the machine's
own work for comparison, decoding one check with Python's `json`, is measured in the same run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKS = [ROOT / "tests/gpu/recorded" / f"check-h200x2-{number}.json.gz" for number in (1, 2)]
CPU_PER_HOST_S, MERGE_MB = 0.5, 400
CPU_S, PEAK_MB = 1.0, 300


@dataclass(frozen=True)
class Cost:
    """CPU time in seconds and peak memory in MB of a process."""

    cpu_s: float
    peak_mb: float


def cost(*arguments: str | Path) -> Cost:
    """Cost of the command ``stallscope ARGUMENTS``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stallscope", *map(str, arguments)],
        env=_environment(),
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"stallscope {arguments[0]} ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _environment() -> dict[str, str]:
    """The environment of the commands: an installed program has compiled modules, so one that runs here gets them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "app"), str(ROOT / "probes")))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def copies(folder: Path, hosts: int) -> list[Path]:
    """Copies of the recorded checks, each with a host name of its own."""
    texts = [gzip.decompress(path.read_bytes()).decode() for path in CHECKS]
    paths = []
    for number in range(hosts):
        text, found = re.subn(r'"hostname":"[^"]*"', f'"hostname":"node-{number:04d}"', texts[number % len(texts)])
        assert found == 1
        paths.append(folder / f"check-{number:04d}.json.gz")
        paths[-1].write_bytes(gzip.compress(text.encode(), 1))
    return paths


def main() -> None:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=60, help="number of checks to merge (default: 60)")
    parser.add_argument("--check", action="store_true", help="exit 1 if a cost is above its limit")
    arguments = parser.parse_args()
    text = gzip.decompress(CHECKS[0].read_bytes())
    begin = time.process_time()
    json.loads(text)
    print(f"json.loads of one check of {len(text) / 1e6:.1f} MB: {time.process_time() - begin:.2f} s CPU")
    failed = False
    # Writes the compiled modules.
    cost("compare", *CHECKS)
    for name, wanted in {"show": CHECKS[:1], "compare": CHECKS}.items():
        found = cost(name, *wanted)
        failed |= found.cpu_s > CPU_S or found.peak_mb > PEAK_MB
        print(f"{name}: {found.cpu_s:.2f} s CPU, {found.peak_mb:.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        paths = copies(Path(folder), arguments.hosts)
        save: list[str | Path] = ["--save", Path(folder) / "fleet.json.gz"]
        for name, options in {"merge": [], "merge --save": save}.items():
            found = cost("merge", *paths, *options)
            each = found.cpu_s / len(paths)
            failed |= each > CPU_PER_HOST_S or found.peak_mb > MERGE_MB
            print(f"{name} of {len(paths)}: {each:.3f} s CPU per host, {found.peak_mb:.0f} MB")
    sys.exit(failed and arguments.check)


if __name__ == "__main__":
    main()
