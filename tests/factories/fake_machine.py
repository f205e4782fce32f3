"""``stallscope`` on a machine made up for a test: python fake_machine.py MODE [argument of stallscope]...

MODE says what its GPU and the measurement do. Signals, pipes, files and exit codes are real.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from factories import matrices, matrix_examples, runs
from factories.hostile_text import HOSTILE, poisoned
from stallprobes.errors import EngineFailed
from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.progress import CheckProgress
from stallprobes.matrix.matrix import QUIET, Cell, LostEngine, Matrix, Status
from stallprobes.measurement import measure
from stallprobes.measurement.result import RunResult
from stallprobes.measurement.run_clock import RunProgress
from stallscope.cli.main import main

GPU = Gpu("GPU-aaaa1111-0000-0000-0000-000000000001", "0000:1b:00.0", "NVIDIA H200", nvml_index=0, cuda_index=0)
ON_GPU = {**matrices.FINGERPRINT, "gpu": GPU.name}
SHARED = Gpu(**{**GPU.__dict__, "processes": (GpuProcess(1, "train", None),)})
HOSTILE_GPU = replace(SHARED, name=HOSTILE, compute_mode=HOSTILE, processes=(GpuProcess(1, HOSTILE, None),))
# Words of a result that a report compares with.
_WORDS = (QUIET, "cuda", "ok", "unsupported", "invalid", "2026-11-21T07:00:00+00:00", "2026-11-21T10:00:00+00:00")


def until_stopped(*_: object, stop: Callable[[], bool], **__: object) -> RunResult:
    """A measurement that ends when it is asked to, with one variant done."""
    ready()
    while not stop():
        time.sleep(0.01)
    return runs.run(runs.variant("kernel-other-context", runs.stalled()), interrupted=True)


def deaf(*_: object, **__: object) -> RunResult:
    """A measurement that never looks whether it shall end: an engine that hangs while it starts."""
    ready()
    until = time.monotonic() + 600
    while time.monotonic() < until:
        # Short, because a signal that arrives just before a sleep is handled after it.
        time.sleep(0.01)
    raise AssertionError("nobody interrupted it")


def failing(*_: object, **__: object) -> RunResult:
    raise EngineFailed(4, "the engine ended (killed by signal 9)")


def broken(*_: object, **__: object) -> RunResult:
    raise RuntimeError("a mistake in the program")


def hostile(*_: object, progress: Callable[[Any], None], **__: object) -> RunResult:
    progress(RunProgress(0.5, 2.0, HOSTILE))
    return poisoned(runs.everything(), _WORDS)


def hostile_failure(*_: object, **__: object) -> RunResult:
    raise EngineFailed(4, HOSTILE)


def hostile_defect(*_: object, **__: object) -> RunResult:
    raise RuntimeError(HOSTILE)


def all_kinds(*_: object, progress: Callable[[Any], None], **__: object) -> RunResult:
    progress(RunProgress(0.5, 2.0, "kernel-other-context"))
    return runs.everything()


def fine(*_: object, **__: object) -> RunResult:
    return runs.run(runs.variant("kernel-other-context", runs.stalled()))


def large(*_: object, **__: object) -> RunResult:
    """More lines than a pipe holds."""
    return runs.run(*(runs.variant(f"variant-{number}", runs.stalled()) for number in range(300)))


def check_until_stopped(*_: object, stop: Callable[[], bool], **__: object) -> Matrix:
    """A check that ends when it is asked to, with all but one of its cells measured."""
    ready()
    while not stop():
        time.sleep(0.01)
    made = checked()
    key = ("launch", "alloc-async")
    missing = Cell(*key, status=Status.MISSING)
    return made.changed(cells={**made.cells, key: missing}, interrupted=True)


def check_fine(*_: object, **__: object) -> Matrix:
    return checked()


def check_slower(*_: object, **__: object) -> Matrix:
    """A newer driver, with which launches beside the spin kernel take twice as long."""
    made = matrices.made_up(2, drift=0.02, times={("launch", "spin"): 2.0, ("d2d", "host-alloc-free"): 427.0})
    return made.changed(fingerprint={**ON_GPU, "driver": "590.2"})


def check_unusual(*_: object, **__: object) -> Matrix:
    """A machine on which launches beside asynchronous allocations stall, as on no other one."""
    return matrices.made_up(3, drift=0.02, times={("launch", "alloc-async"): 40.0}).changed(fingerprint=ON_GPU)


def check_all_kinds(*_: object, progress: Callable[[Any], None], **__: object) -> Matrix:
    progress(CheckProgress(11, 44, 12.3, "repeat 1 of 4 · spin kernel"))
    return matrix_examples.every_kind()


def check_hostile(*_: object, progress: Callable[[Any], None], **__: object) -> Matrix:
    progress(CheckProgress(11, 44, 12.3, HOSTILE))
    return poisoned(matrix_examples.every_kind(), _WORDS)


def check_nothing(*_: object, **__: object) -> Matrix:
    made = checked()
    cells = {
        key: cell if cell.column == QUIET else cell.changed(status=Status.INVALID, reason="the spin did not run")
        for key, cell in made.cells.items()
    }
    return made.changed(cells=cells)


def check_lost(*_: object, **__: object) -> Matrix:
    """A check during which an engine is killed, and another one after its last cell."""
    made = checked()
    key = ("d2d", "host-alloc-free")
    lost = made.cells[key].changed(status=Status.INVALID, reason="the engine was lost: killed by SIGKILL")
    engines = (LostEngine("killed by SIGKILL", (key,)), LostEngine("killed by SIGKILL", ()))
    return made.changed(cells={**made.cells, key: lost}, lost_engines=engines)


def check_spoilt(*_: object, **__: object) -> Matrix:
    """A check during which somebody else makes the file that it is to be saved to."""
    Path(os.environ["SPOILT"]).write_text("somebody else's", encoding="utf-8")
    return checked()


def checked() -> Matrix:
    return matrices.made_up(1, drift=0.02, times={("d2d", "host-alloc-free"): 427.0}).changed(fingerprint=ON_GPU)


def ready() -> None:
    print("ready", file=sys.stderr, flush=True)


MODES = {
    "until-stopped": until_stopped,
    "deaf": deaf,
    "failing": failing,
    "broken": broken,
    "all-kinds": all_kinds,
    "fine": fine,
    "shared": fine,
    "large": large,
    "hostile": hostile,
    "hostile-failure": hostile_failure,
    "hostile-defect": hostile_defect,
}

CHECKS: dict[str, Callable[..., Any]] = {
    "until-stopped": check_until_stopped,
    "deaf": deaf,
    "failing": failing,
    "broken": broken,
    "all-kinds": check_all_kinds,
    "slower": check_slower,
    "unusual": check_unusual,
    "nothing": check_nothing,
    "lost": check_lost,
    "spoilt": check_spoilt,
    "hostile": check_hostile,
    "hostile-failure": hostile_failure,
    "hostile-defect": hostile_defect,
    # What is refused must be refused before anything is measured.
    "never": broken,
}


def prepare() -> None:
    """Make up the matrices of the checks before a process that is forked needs them."""
    checked()
    check_slower()
    check_unusual()
    matrix_examples.every_kind()


def run(mode: str, arguments: Sequence[str]) -> NoReturn:
    """Run ``stallscope`` with ``arguments`` on the machine ``mode``. Ends the process."""
    gpu = HOSTILE_GPU if mode.startswith("hostile") else SHARED if mode == "shared" else GPU
    gpus.survey = lambda *_: Survey((gpu,), DriverReport(cuda_version=13000))
    measure.run = MODES.get(mode, broken)  # type: ignore[assignment]
    runner.run = CHECKS.get(mode, check_fine)
    main(arguments)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
