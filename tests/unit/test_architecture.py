"""Who may import whom, seen from outside: what a fresh interpreter has loaded after an import."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import stallprobes
import stallscope

HEAVY = {"textual", "rich", "numba", "llvmlite", "cuda", "simpy", "pynvml"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that ``statement`` loads in a fresh interpreter."""
    path = os.pathsep.join(str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes))
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def names(package: str, where: list[str]) -> list[str]:
    return [module.name for module in pkgutil.walk_packages(where, f"{package}.") if "__main__" not in module.name]


@pytest.mark.parametrize(
    "module",
    [
        "stallscope.cli.main",
        "stallscope.cli.stdout",
        "stallscope.cli.diagnostics",
        "stallscope.report.run_text",
        "stallprobes.model",
        "stallprobes.catalog",
        "stallprobes.patterns",
        "stallprobes.doctor",
        "stallprobes.machine.gpus",
        "stallprobes.machine.telemetry",
        # What stands before the screen's first frame.
        "stallscope.cli.screen",
        "stallscope.cli.options",
        "stallscope.tui.prewarm",
    ],
)
def test_what_only_tells_loads_nothing_that_measures(module: str) -> None:
    assert not loaded_by(f"import {module}") & (HEAVY | {"numpy"})


@pytest.mark.parametrize(
    "module",
    [
        "stallprobes.engine.session",
        "stallprobes.measurement.measure",
        "stallprobes.measurement.document",
        "stallprobes.live.recording",
        "stallprobes.live.analyzer",
    ],
)
def test_who_only_reads_figures_needs_neither_a_compiler_nor_cuda(module: str) -> None:
    assert not loaded_by(f"import {module}") & HEAVY


def test_no_probe_module_loads_a_screen_or_a_command_line() -> None:
    modules = names("stallprobes", list(stallprobes.__path__))
    assert "stallprobes.model" in modules
    loaded = loaded_by("\n".join(f"import {module}" for module in modules))
    assert not loaded & {"stallscope", "textual", "rich", "click"}
