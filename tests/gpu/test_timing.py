"""On a real GPU: the loop times a launch as a C program does, whatever Python does beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "bench_launch.py"

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def test_a_launch_is_timed_as_c_times_it_beside_busy_python_and_beside_other_probes(tmp_path: Path) -> None:
    # A process of its own, since the benchmark makes a context in the process that runs it.
    figures = tmp_path / "launch.json"
    command = [sys.executable, str(BENCHMARK), "--rounds", "5", "--seconds", "0.6", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert figures.exists(), done.stdout + done.stderr
    assert json.loads(figures.read_text())["failures"] == [], done.stdout
    assert done.returncode == 0
