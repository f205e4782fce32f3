"""Who may import whom, seen from outside: what a fresh interpreter has loaded after an import."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import stallprobes
import stallscope

HEAVY = {"textual", "rich", "cuda", "simpy", "pynvml"}


def loaded_by(*modules: str) -> dict[str, set[str]]:
    """The top-level modules that are loaded after each of ``modules``, which a fresh interpreter imports in turn."""
    path = os.pathsep.join(str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes))
    # A .pth file loads ``cuda`` in every interpreter, where cuda-bindings is that of CUDA 12.
    source = "import importlib, json, sys\nbefore = set(sys.modules)\nfor name in sys.argv[1:]:\n"
    source += "    importlib.import_module(name)\n"
    source += "    print(json.dumps([name, sorted({found.split('.')[0] for found in set(sys.modules) - before})]))"
    done = subprocess.run(
        [sys.executable, "-c", source, *modules],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: set(found) for name, found in map(json.loads, done.stdout.splitlines())}


def loading(modules: Sequence[str], unwanted: set[str]) -> dict[str, set[str]]:
    """What of ``unwanted`` is loaded after each of ``modules``, for those after which anything is."""
    loaded = loaded_by(*modules)
    assert list(loaded) == list(modules)
    return {name: found & unwanted for name, found in loaded.items() if found & unwanted}


def names(package: str, where: list[str]) -> list[str]:
    return [module.name for module in pkgutil.walk_packages(where, f"{package}.") if "__main__" not in module.name]


def test_what_only_tells_loads_nothing_that_measures() -> None:
    modules = [
        "stallscope.cli.main",
        "stallscope.cli.process.stdout",
        "stallscope.cli.process.diagnostics",
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
        "stallscope.cli.process.prewarm",
    ]
    assert loading(modules, HEAVY | {"numpy"}) == {}


def test_who_only_reads_figures_needs_neither_a_compiler_nor_cuda() -> None:
    modules = [
        "stallprobes.engine.session",
        "stallprobes.measurement.measure",
        "stallprobes.measurement.result",
        "stallprobes.recording.recording",
        "stallprobes.live.analyzer",
    ]
    assert loading(modules, HEAVY) == {}


def test_no_probe_module_loads_a_screen_or_a_command_line() -> None:
    modules = names("stallprobes", list(stallprobes.__path__))
    assert "stallprobes.model" in modules
    assert loading(modules, {"stallscope", "textual", "rich", "click"}) == {}
