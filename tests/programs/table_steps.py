"""Steps of a program of bench_watch_table.py: table_steps.py SECONDS FILE NAME"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from step_times import run_steps

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_watch_table import PROGRAMS

if __name__ == "__main__":
    run_steps(PROGRAMS[sys.argv[3]](torch))
