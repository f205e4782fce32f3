"""Builds the program of schedules and its model of a GPU, runs it plain, and watches it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from factories.forked_processes import ForkedProcess
from stallprobes.native.layouts.cupti import SIZES, RecordKind, size_of
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE
from truth import reading
from truth.schedules import Schedule
from truth.truth import Trace

FOLDER = Path(__file__).parent
# Folders for PYTHONPATH of the started processes.
ROOTS = [str(FOLDER.parents[1] / name) for name in ("app", "probes", "tests")]
# Version of the stand-in for CUPTI, as from cuptiGetVersion: 13.1. The sizes of records depend on the version.
_CUPTI_VERSION = 130100
# Kinds of records that the stand-in for CUPTI writes.
_KINDS = ("KERNEL", "COPY", "PEER_COPY", "MEMSET", "OVERHEAD", "CONTEXT_SWITCH", "STREAM")
# Compiler flags of program.c and of the libraries of the model of a GPU.
_FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC")
# Longest time (s) of a started process, far beyond what it takes on a busy machine; after it, the process is killed.
_LONGEST_S = 400
# Times (s) in an attached program's steady part: before watch attaches, and from the planned detach to the end.
_BEFORE_ATTACH_S, _AFTER_DETACH_S = 1.0, 1.5


def build(folder: Path, model: bool) -> None:
    """Compile the program, and with ``model`` the libraries of a model of GPUs."""
    _compile("program.c", folder / "program", "-O2", "-lm")
    if not model:
        return
    _compile("model_cuda.c", folder / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1")
    sizes = [f"-D{name}_BYTES={size_of(kind, max(_CUPTI_VERSION, min(SIZES[kind])))}" for name, kind in _kinds()]
    version = f"-DVERSION={_CUPTI_VERSION}"
    _compile("model_cupti.c", folder / "libcupti.so.13", "-shared", "-Wl,-soname,libcupti.so.13", version, *sizes)


def _kinds() -> list[tuple[str, RecordKind]]:
    return [(name, RecordKind[name]) for name in _KINDS]


def _compile(source: str, target: Path, *flags: str) -> None:
    subprocess.run(
        ["gcc", *_FLAGS, "-o", str(target), str(FOLDER / source), *flags, "-lpthread", "-ldl"],
        check=True,
        capture_output=True,
    )


@dataclass(frozen=True)
class Watched:
    """A program that has ended: its trace, and the report about it (None where it was not watched)."""

    trace: Trace
    report: reading.Report | None


@dataclass(frozen=True)
class Programs:
    """A folder with the built program.

    ``model``: beside the model of a GPU, not on one. ``readings``: the file of the folder in which the readings of the
    program that is watched are kept, "" for none.
    """

    folder: Path
    model: bool
    options: Sequence[str] = ("--cost", "5")
    settings: Mapping[str, str] = field(default_factory=dict)
    readings: str = ""

    def run(self, schedule: Schedule, watched: bool = True, attached: bool = False) -> Watched:
        """Run a schedule, watched from its start, attached, or not at all.

        RuntimeError with what it said if the program or ``watch`` fails.
        """
        text, trace, report = (self.folder / f"now.{ending}" for ending in ("txt", "trace", "json"))
        text.write_text(schedule.text)
        report.unlink(missing_ok=True)
        line = [str(self.folder / "program"), str(text), str(trace)]
        watch = [*self._stallscope(), "watch", "--headless", *self.options, "--json", str(report)]
        if attached:
            pid = self._attach(line, watch, schedule.seconds)
        elif watched:
            pid = self._start([*watch, "--", *line])
        else:
            pid = self._start(line)
        read = Trace.read(trace, schedule)
        thread = read.threads[0]
        assert pid in (0, thread)
        return Watched(read, reading.read(report, thread) if watched or attached else None)

    def run_all(self, schedules: Sequence[Schedule]) -> tuple[Watched, ...]:
        """Run schedules one after the other, all watched from their starts by one command.

        RuntimeError with what it said if a program or ``watch`` fails.
        """
        files = [
            tuple(self.folder / f"{number}.{ending}" for ending in ("txt", "trace")) for number in range(len(schedules))
        ]
        for schedule, (text, _) in zip(schedules, files, strict=True):
            text.write_text(schedule.text)
        report, program = self.folder / "all.json", shlex.quote(str(self.folder / "program"))
        lines = (f"{program} {shlex.quote(str(text))} {shlex.quote(str(trace))}" for text, trace in files)
        watch = [sys.executable, "-m", "stallscope", "watch", "--headless", *self.options, "--json", str(report)]
        self._start([*watch, "--", "sh", "-e", "-c", "; ".join(lines)], ForkedProcess)
        traces = [Trace.read(trace, schedule) for schedule, (_, trace) in zip(schedules, files, strict=True)]
        return tuple(Watched(trace, reading.read(report, trace.threads[0])) for trace in traces)

    def _stallscope(self) -> list[str]:
        module = ["truth.kept_readings", str(self.folder / self.readings)] if self.readings else ["stallscope"]
        return [sys.executable, "-m", *module]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")])
        added = {"PYTHONPATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
        if self.model:
            added |= {"LD_LIBRARY_PATH": str(self.folder), CUPTI_VARIABLE: str(self.folder / "libcupti.so.13")}
        return {**os.environ, **added, **self.settings}

    def _start(self, line: Sequence[str], start_process: type[subprocess.Popen[str]] = subprocess.Popen) -> int:
        with start_process(
            line,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                _, errors = process.communicate(timeout=_LONGEST_S)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode}: {errors[-600:]}")
        return 0

    def _attach(self, line: Sequence[str], watch: Sequence[str], seconds: float) -> int:
        """Attach to the program in its steady part, and detach before its end."""
        with subprocess.Popen(line, env=self._environment(), stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                if program.stdout.readline() != "steady\n":
                    raise RuntimeError("the program did not begin")
                time.sleep(_BEFORE_ATTACH_S)
                length = max(seconds - _BEFORE_ATTACH_S - _AFTER_DETACH_S, 1.0)
                self._start([*watch, "--pid", str(program.pid), "--seconds", f"{length:g}"])
                program.wait(_LONGEST_S)
            finally:
                program.kill()
        return program.pid
