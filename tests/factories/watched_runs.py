"""Watched runs for comparisons: those of recorded programs, made faster or slower, and programs made up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from random import Random

from msgspec.structs import replace

from factories.recorded_divisions import FOLDER, findings_of, recorded_division
from factories.watch_moments import findings
from stallprobes.watch.analysis import watch_findings
from stallprobes.watch.attribution.findings import WatchedGpu, WatchFindings
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import GPU_PARTS, Bound, Part
from stallprobes.watch.division.result import KernelTime, ProcessDivision
from stallprobes.watch.division.steps import Step
from stallprobes.watch.lines.result import LineTime, ProgramLine, ProgramSequence, WaitPlace
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame

NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.npz")))
GPU = WatchedGpu(uuid="a", model="NVIDIA H200", driver="580.159.04", cuda="13.0", sm_clock_mhz=1980.0)
# Time (ns) for which a made-up program is watched.
COVERED_NS = 10_000_000_000


@cache
def recorded_findings(name: str) -> WatchFindings:
    """The report on two seconds of a program that an H200 recorded."""
    findings = watch_findings((findings_of(name),), 10**18)
    return findings.changed(program=("python", f"{name}.py"), exit_code=0)


@cache
def recorded(name: str) -> WatchFindings:
    """A run of a recorded program, as if it had been watched from its steady state on."""
    return _steady(recorded_findings(name))


def halves(name: str) -> tuple[WatchFindings, ...]:
    """The two halves of a recorded program, as runs."""
    parts = recorded_division(name).halves()
    return tuple(_steady(watch_findings((part.findings(),), 10**18).changed(program=(name,))) for part in parts)


def _steady(run: WatchFindings) -> WatchFindings:
    processes = tuple(
        replace(
            process, division=None if process.division is None else process.division.changed(steady=True), cost=None
        )
        for process in run.processes
    )
    return replace(run, processes=processes)


def slower(run: WatchFindings, factor: float, *, mhz: float | None = None) -> WatchFindings:
    """A run in which everything takes ``factor`` times as long, with an SM clock of ``mhz``."""
    gpus = tuple(gpu.changed(sm_clock_mhz=mhz or gpu.sm_clock_mhz) for gpu in run.gpus)
    processes = tuple(
        replace(process, sequences=tuple(_slower(sequence, factor) for sequence in process.sequences))
        for process in run.processes
    )
    return replace(run, gpus=gpus, processes=processes)


def _slower(sequence: ProgramSequence, factor: float) -> ProgramSequence:
    step = sequence.step
    return sequence.changed(
        step=None if step is None else step.changed(ns=round(step.ns * factor)),
        operations=round(sequence.operations / factor),
        kernels=tuple(kernel.changed(count=max(round(kernel.count / factor), 1)) for kernel in sequence.kernels),
    )


def varied(run: WatchFindings, chance: Random, low: float = 0.85, high: float = 1.2) -> WatchFindings:
    """A run as processes of one program differ: its time by ``low`` to ``high``, the shares of its parts by a few
    percent, and counts of kernels by those that windows cut."""
    made = slower(run, math.exp(chance.uniform(math.log(low), math.log(high))))
    processes = tuple(
        replace(process, sequences=tuple(_varied(sequence, chance) for sequence in process.sequences))
        for process in made.processes
    )
    return replace(made, processes=processes)


def _varied(sequence: ProgramSequence, chance: Random) -> ProgramSequence:
    parts = {part: round(ns * chance.uniform(0.95, 1.05)) for part, ns in sequence.parts.items()}
    scale = sum(sequence.parts.values()) / max(sum(parts.values()), 1)
    return sequence.changed(
        parts={part: round(ns * scale) for part, ns in parts.items()},
        kernels=tuple(
            kernel.changed(
                count=max(round(kernel.count * chance.uniform(0.98, 1.02)), 1),
                mean_ns=round(kernel.mean_ns * chance.uniform(0.95, 1.05)),
            )
            for kernel in sequence.kernels
        ),
    )


def place(line: int, function: str = "step", file: str = "/home/user/train.py") -> StackFrame:
    """A line of Python."""
    return StackFrame(FrameKind.PYTHON, function, file, line)


def program_run(
    step_ns: float,
    parts: Mapping[Part, float],
    *,
    verdict: Bound = Bound.HOST,
    lines: Mapping[int, float] | None = None,
    waits: Mapping[int, float] | None = None,
    kernels: Mapping[str, float] | None = None,
    function: str = "cuStreamSynchronize",
    per_step: int = 1,
    blocks: int = 256,
    command: tuple[str, ...] = ("python", "train.py"),
    gpu: WatchedGpu = GPU,
) -> WatchFindings:
    """A made-up run. ``parts``, ``lines`` and ``waits`` (by line) are shares of the time, ``kernels`` numbers in a
    step by name. ``per_step`` is how many calls of ``function`` mark a step."""
    whole = sum(parts.values())
    shares = {part: share / whole for part, share in parts.items()}
    steps = COVERED_NS / step_ns
    works = sum(shares.get(part, 0.0) for part in GPU_PARTS)
    counts = {name: round(number * steps) for name, number in (kernels or {"gemm": 4, "add": 10, "norm": 2}).items()}
    gpu_ns = works * COVERED_NS / max(sum(counts.values()), 1)

    def figure(share: float) -> Figure:
        return Figure(share, max(share - 0.01, 0.0), min(share + 0.01, 1.0))

    sequence = ProgramSequence(
        threads=(100,),
        device=0,
        verdict=verdict,
        host=figure(shares.get(Part.HOST, 0.0)),
        gpu=figure(works),
        covered_ns=COVERED_NS,
        parts={part: round(share * COVERED_NS) for part, share in shares.items()},
        operations=sum(counts.values()),
        step=Step(
            function=function,
            bytes=0,
            thread=100,
            ns=round(step_ns / per_step),
            low_ns=round(step_ns / per_step),
            high_ns=round(step_ns / per_step),
            steps=round(steps * per_step),
        ),
        samples=5000,
        ns=COVERED_NS,
        kernels=tuple(
            KernelTime(
                name=name,
                share=count / max(sum(counts.values()), 1),
                count=count,
                mean_ns=round(gpu_ns),
                deviation_ns=0,
                least_blocks=blocks,
                most_blocks=blocks,
            )
            for name, count in counts.items()
        ),
        lines=tuple(
            ProgramLine(
                place=place(number),
                stack=None,
                thread=100,
                samples=round(5000 * share),
                share=figure(share),
                between=LineTime(share=share),
                cost=figure(share),
            )
            for number, share in (lines or {}).items()
        ),
        wait_places=tuple(
            WaitPlace(
                place=place(number),
                inner=None,
                function="cuStreamSynchronize",
                thread=100,
                calls=steps,
                per_second=1e9 / step_ns,
                share=share,
                price=share,
            )
            for number, share in (waits or {}).items()
        ),
        recorded=1.0,
        alone=True,
        engine_known=True,
    )
    process = (
        findings(8)
        .processes[0]
        .changed(
            command=" ".join(command),
            calls_only=False,
            gpus=("a",),
            division=ProcessDivision(steady=True, start_up_ns=0, start_up={}, other_threads=0),
            sequences=(sequence,),
        )
    )
    return findings(8).changed(
        program=command,
        exit_code=0,
        began_at="2026-11-30T12:00:00.000+00:00",
        duration_ns=COVERED_NS,
        gpus=(gpu,),
        processes=(process,),
    )
