"""Promises about time: the start of --help, the speed of the simulated GPU, the end of the screen and of an engine.

python tests/benchmarks/bench_promises.py [--rounds N] [--check]

Needs no GPU. The tests assert what is done; this measures how fast. Each figure is the best of ``--rounds``, so that a
machine that is busy for a moment changes nothing. With --check it exits 1 where a figure is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories import processes
from factories.command_line import command, environment
from factories.terminal import Terminal
from factories.waiting import wait_until
from stallprobes.engine.session import Session

HELP_RATIO, SIMULATED_RATIO, KEY_S, LEAVE_S, ENGINE_S = 2.5, 0.5, 0.6, 1.0, 2.0


def seconds(*arguments: str) -> float:
    """How long a program takes."""
    began = time.perf_counter()
    subprocess.run(arguments, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def help_ratio() -> float:
    """``--help``, as a multiple of what importing click takes."""
    return seconds(*command(None, "--help")) / seconds(sys.executable, "-c", "import click")


def simulated_ratio() -> float:
    """``run all --sim``, as a multiple of the virtual time that it measures."""
    began = time.perf_counter()
    arguments = command(None, "run", "all", "--sim", "--seconds", "1.5", "--json")
    done = subprocess.run(arguments, env=environment(), check=True, capture_output=True, text=True)
    wall = time.perf_counter() - began
    return wall / float(sum(one["baseline_s"] + one["window_s"] for one in json.loads(done.stdout)["variants"]))


def screen(stop_engine: bool) -> tuple[Terminal, int]:
    """The screen over a simulated GPU, live; with ``stop_engine`` its engine hangs."""
    terminal = Terminal(["--sim", "h200"], (120, 36), {"STALLSCOPE_SETTINGS": os.devnull})
    terminal.wait_for("live")
    (engine,) = terminal.children()
    if stop_engine:
        os.kill(engine, signal.SIGSTOP)
        terminal.wait_for("ENGINE SILENT")
    return terminal, engine


def key_s(stop_engine: bool) -> float:
    """From a key to the dialog that it opens."""
    terminal, _ = screen(stop_engine)
    began = time.perf_counter()
    terminal.wait_for("Pause or resume the view", terminal.press("?"))
    took = time.perf_counter() - began
    terminal.close()
    return took


def leave_s(stop_engine: bool) -> float:
    """From the key that leaves to the end of the program and of its engine."""
    terminal, engine = screen(stop_engine)
    began = time.perf_counter()
    terminal.press("q")
    terminal.wait_for_end()
    processes.wait_for_end(engine)
    took = time.perf_counter() - began
    terminal.close()
    return took


def engine_s(stopped: bool) -> float:
    """From the stop of a session to the end of its engine; with ``stopped`` the engine hangs."""
    session = Session([], "host")
    session.start()
    engine = session.engine_pid
    assert engine is not None
    if stopped:
        os.kill(engine, signal.SIGSTOP)
    began = time.perf_counter()
    session.stop()
    wait_until(lambda: processes.has_ended(engine), "the engine has ended")
    return time.perf_counter() - began


def main() -> int:
    """Measure and print; 1 where a limit is broken and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    promises: list[tuple[str, Callable[[], float], float]] = [
        ("--help, times import click", help_ratio, HELP_RATIO),
        ("run all --sim, times what it measures", simulated_ratio, SIMULATED_RATIO),
        ("screen: a key is answered, s", lambda: key_s(False), KEY_S),
        ("screen: a key is answered while the engine hangs, s", lambda: key_s(True), KEY_S),
        ("screen: q ends it and its engine, s", lambda: leave_s(False), LEAVE_S),
        ("screen: q ends it while the engine hangs, s", lambda: leave_s(True), LEAVE_S),
        ("session: stop ends the engine, s", lambda: engine_s(False), ENGINE_S),
        ("session: stop ends an engine that hangs, s", lambda: engine_s(True), ENGINE_S),
    ]
    broken = False
    for words, measure, limit in promises:
        best = min(measure() for _ in range(asked.rounds))
        broken |= best > limit
        print(f"{words:54} {best:7.3f}  (limit {limit:g}){'  BROKEN' if best > limit else ''}", flush=True)
    return int(asked.check and broken)


if __name__ == "__main__":
    raise SystemExit(main())
