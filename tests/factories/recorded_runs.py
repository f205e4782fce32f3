"""Results of runs that H200 recorded."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from stallprobes.files import codec
from stallprobes.measurement.result import RunResult

FOLDER = Path(__file__).parents[1] / "gpu" / "recorded"


@cache
def recorded_run(name: str) -> RunResult:
    """The run in the file ``name`` of ``tests/gpu/recorded``."""
    data = (FOLDER / name).read_bytes()
    return codec.decoded(gzip.decompress(data) if name.endswith(".gz") else data, RunResult)
