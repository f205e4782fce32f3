"""``stallscope`` on a machine made up for a test: python fake_machine.py MODE [argument of stallscope]...

MODE says what its GPU and the measurement do. Signals, pipes, files and exit codes are real.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import synthetic

from stallprobes import gpus, measure
from stallprobes.driver import DriverReport
from stallprobes.gpus import Gpu, GpuProcess, Survey
from stallprobes.session import EngineFailed
from stallscope.cli import main

GPU = Gpu("GPU-aaaa1111-0000-0000-0000-000000000001", "0000:1b:00.0", "NVIDIA H200", nvml_index=0, cuda_index=0)
SHARED = Gpu(**{**GPU.__dict__, "processes": (GpuProcess(1, "train", None),)})


def until_stopped(*_: object, stop: Callable[[], bool], **__: object) -> measure.RunResult:
    """A measurement that ends when it is asked to, with one variant done."""
    ready()
    while not stop():
        time.sleep(0.01)
    return synthetic.run(synthetic.variant("kernel-other-context", synthetic.stalled()), interrupted=True)


def deaf(*_: object, **__: object) -> measure.RunResult:
    """A measurement that never looks whether it shall end: an engine that hangs while it starts."""
    ready()
    time.sleep(60)
    raise AssertionError("nobody interrupted it")


def failing(*_: object, **__: object) -> measure.RunResult:
    raise EngineFailed(4, "the engine ended (killed by signal 9)")


def broken(*_: object, **__: object) -> measure.RunResult:
    raise RuntimeError("a mistake in the program")


def all_kinds(*_: object, progress: Callable[[Any], None], **__: object) -> measure.RunResult:
    progress(measure.Progress(0.5, 2.0, "kernel-other-context"))
    return synthetic.everything()


def fine(*_: object, **__: object) -> measure.RunResult:
    return synthetic.run(synthetic.variant("kernel-other-context", synthetic.stalled()))


def large(*_: object, **__: object) -> measure.RunResult:
    """More lines than a pipe holds."""
    return synthetic.run(*(synthetic.variant(f"variant-{number}", synthetic.stalled()) for number in range(2000)))


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
}

if __name__ == "__main__":
    mode = sys.argv[1]
    gpu = SHARED if mode == "shared" else GPU
    gpus.survey = lambda *_: Survey((gpu,), DriverReport(cuda_version=13000))
    measure.run = MODES[mode]  # type: ignore[assignment]
    main(sys.argv[2:])
