"""The programs that prove remedies: their regions with the lines, their measurement, and the files of the package.

A region stands between a comment ``remedy VARIANT`` and a comment ``end``. A program is named after its pattern, with
the language at the end: ``scalar_readback.cu``, ``scalar_readback_pytorch.py``, ``scalar_readback_cupy.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage, MeasuredEffect, RemedyCode, remedy_code

PROGRAMS = Path(__file__).parents[1] / "programs"
FOLDER = PROGRAMS / "remedies"
# Far beyond what a program takes: it only ends one that hangs.
LIMIT_S = 120
# A remedy leaves at most the inverse of this of what the cause adds.
LEAST_GAIN = 5

# The package's files, one for each pattern.
PACKAGED = PROGRAMS.parents[1] / "probes" / "stallprobes" / "patterns" / "remedies"

_ENDINGS = {CodeLanguage.CUDA: ".cu", CodeLanguage.PYTORCH: "_pytorch.py", CodeLanguage.CUPY: "_cupy.py"}
_BEGIN = re.compile(r"\s*(?://|#) remedy ([a-z0-9-]+)")
_HEAD = "# Written by tests/programs/remedies/package.py from the programs beside it.\n"
_END = re.compile(r"\s*(?://|#) end")


class NotRunnable(Exception):
    """The machine lacks what a program needs; the text names it."""


@dataclass(frozen=True)
class RemedyProgram:
    """A program that measures remedies of ``pattern`` in one language."""

    path: Path
    pattern: str
    language: CodeLanguage


@dataclass(frozen=True)
class ProgramResult:
    """What a program printed: latency of ``victim`` in us with the stall, and by the variant of each remedy.

    ``without_us`` is the latency without the cause; 0 where the stall is hundreds of times longer.
    """

    victim: str
    before_us: float
    after_us: Mapping[str, float]
    without_us: float = 0.0

    def gone(self, variant: str) -> bool:
        """Whether the remedy ``variant`` ends the stall."""
        return LEAST_GAIN * (self.after_us[variant] - self.without_us) <= self.before_us - self.without_us


def programs() -> list[RemedyProgram]:
    """All programs, by name."""
    found = []
    for path in sorted(FOLDER.iterdir()):
        for language, ending in _ENDINGS.items():
            if path.name.endswith(ending):
                pattern = path.name.removesuffix(ending).replace("_", "-")
                found.append(RemedyProgram(path, pattern, language))
    return found


def regions(source: str) -> dict[str, tuple[str, ...]]:
    """The lines of each remedy by its variant; an empty line separates the regions of one remedy.

    Raises ValueError for a region in another one, or without an end.
    """
    found: dict[str, list[list[str]]] = {}
    begun: list[str] | None = None
    for number, line in enumerate(source.splitlines(), 1):
        begin = _BEGIN.fullmatch(line)
        if begin is not None:
            if begun is not None:
                raise ValueError(f"line {number}: a region begins in another one")
            begun = []
            found.setdefault(begin[1], []).append(begun)
        elif begun is not None and _END.fullmatch(line):
            begun = None
        elif begun is not None:
            begun.append(line)
    if begun is not None:
        raise ValueError("a region has no end")
    return {
        variant: tuple("\n\n".join(textwrap.dedent("\n".join(lines)) for lines in parts).splitlines())
        for variant, parts in found.items()
    }


def measure(program: RemedyProgram, folder: Path) -> ProgramResult:
    """Run ``program``, a CUDA program compiled to ``folder`` before. Raises NotRunnable."""
    if program.pattern == "peer-copy-behind-kernel" and gpu_count() < 2:
        raise NotRunnable("peer copies need two GPUs")
    done = subprocess.run(
        _command(program, folder), cwd=PROGRAMS, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise AssertionError(f"{program.path.name} exited with {done.returncode}: {done.stderr.strip()}")
    try:
        result = json.loads(done.stdout)
        return ProgramResult(result["victim"], result["before_us"], result["after_us"], result.get("without_us", 0.0))
    except (ValueError, KeyError) as error:
        raise AssertionError(f"{program.path.name} printed no result: {done.stdout!r}") from error


def gpu_count() -> int:
    """The number of GPUs that the driver shows."""
    from stallprobes.machine.libcuda_survey import ask

    return len(ask().devices)


def build(program: RemedyProgram, folder: Path) -> Path:
    """The executable of a CUDA program in ``folder``, which is compiled once.

    Raises NotRunnable, and subprocess.CalledProcessError where it does not compile.
    """
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise NotRunnable("CUDA programs need nvcc")
    built = folder / program.path.stem
    if not built.exists():
        command = [compiler, "-std=c++17", "-o", str(built), str(program.path), f"-L{folder}", "-lcuda"]
        if "<cupti.h>" in program.path.read_text(encoding="utf-8"):
            # Some toolkits have it in a folder of its own.
            cupti = Path(compiler).resolve().parents[1] / "extras" / "CUPTI"
            command += [f"-I{cupti}/include", f"-L{cupti}/lib64", "-Xlinker", f"-rpath={cupti}/lib64", "-lcupti"]
        subprocess.run(command, check=True)
    return built


def build_all(folder: Path) -> None:
    """Compile all CUDA programs to ``folder`` at the same time; what fails fails again where it is run."""
    offer_driver(folder)

    def attempt(program: RemedyProgram) -> None:
        with contextlib.suppress(NotRunnable, subprocess.CalledProcessError):
            build(program, folder)

    with ThreadPoolExecutor() as pool:
        list(pool.map(attempt, [one for one in programs() if one.language is CodeLanguage.CUDA]))


def _command(program: RemedyProgram, folder: Path) -> list[str]:
    if program.language is CodeLanguage.CUDA:
        offer_driver(folder)
        return [str(build(program, folder))]
    module = {CodeLanguage.PYTORCH: "torch", CodeLanguage.CUPY: "cupy"}[program.language]
    if importlib.util.find_spec(module) is None:
        raise NotRunnable(f"{program.language.label} is not installed for {sys.executable}")
    return [sys.executable, "-m", f"remedies.{program.path.stem}"]


def offer_driver(folder: Path) -> None:
    """Put the driver where the linker finds it: a machine that is not for development has libcuda.so.1 alone."""
    link = folder / "libcuda.so"
    if link.is_symlink():
        return
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    link.symlink_to(next(path for line in maps if (path := line.split(maxsplit=5)[-1]) and "/libcuda.so" in path))


def packaged(results: Mapping[Path, ProgramResult | None], machine: str = "") -> dict[str, str]:
    """The content of each file by the name of its pattern.

    ``results`` are measurements on ``machine``, None for a program that failed there. Lines that were not measured keep
    their effect; lines that did not end the stall have none.
    """
    found: dict[str, list[RemedyCode]] = {}
    for program in programs():
        result = results.get(program.path)
        for variant, lines in regions(program.path.read_text(encoding="utf-8")).items():
            effect: MeasuredEffect | None = None
            if program.path not in results or (result is not None and variant not in result.after_us):
                effect = _kept_effect(program, variant, lines)
            elif result is not None and result.gone(variant):
                times = (round(us * 1000) for us in (result.before_us, result.after_us[variant], result.without_us))
                effect = MeasuredEffect(result.victim, machine, *times)
            found.setdefault(program.pattern, []).append(RemedyCode(variant, program.language, lines, effect))
    return {pattern: _HEAD + "".join(map(_table, _sorted(pattern, codes))) for pattern, codes in found.items()}


def _sorted(pattern: str, codes: list[RemedyCode]) -> list[RemedyCode]:
    """``codes`` by language, then in the order of the pattern's variants."""
    languages = list(CodeLanguage)
    variants = [variant.name for variant in patterns()[pattern].variants]
    return sorted(codes, key=lambda code: (languages.index(code.language), variants.index(code.variant)))


def _kept_effect(program: RemedyProgram, variant: str, lines: tuple[str, ...]) -> MeasuredEffect | None:
    known = remedy_code(program.pattern).get(program.language, ())
    return next((one.effect for one in known if one.variant == variant and one.lines == lines), None)


def _table(code: RemedyCode) -> str:
    rows = ["", "[[code]]", f'variant = "{code.variant}"', f'language = "{code.language}"']
    if code.effect is not None:
        effect = code.effect
        without = f", without_us = {effect.without_ns / 1000}" if effect.without_ns else ""
        rows += [
            "effect = { "
            f"victim = {json.dumps(effect.victim)}, machine = {json.dumps(effect.machine)}, "
            f"before_us = {effect.before_ns / 1000}, after_us = {effect.after_ns / 1000}{without} }}"
        ]
    return "\n".join([*rows, "lines = '''", *code.lines, "'''"]) + "\n"
