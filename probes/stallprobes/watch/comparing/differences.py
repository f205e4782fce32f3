"""Differences of two programs and their machines, which are said before what changed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from stallprobes.errors import NotComparable
from stallprobes.foreign_text import printable
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.comparing.measures import command_of, main_sequence, program_of

# Smallest relative difference of the SM clocks that is named.
_CLOCKS_DIFFER = 0.03

# A value of a run by its name, those with the largest effect first. None: not known.
_Value = Callable[[WatchFindings], object]


def _main_gpus(run: WatchFindings) -> tuple[str, ...]:
    found = main_sequence(run)
    used = found[0].gpus if found is not None else ()
    return tuple(gpu.model for gpu in run.gpus if gpu.uuid in used or not used) or tuple(gpu.model for gpu in run.gpus)


def _of_first_gpu(name: str) -> _Value:
    return lambda run: getattr(run.gpus[0], name) if run.gpus else None


def _version(number: int) -> str | None:
    """That of CUPTI, as its library has it: ``130100``."""
    return f"{number // 10000}.{number % 10000 // 100}" if number >= 10000 else (str(number) if number else None)


_MACHINE: dict[str, _Value] = {
    "program": lambda run: program_of(command_of(run)) or None,
    "command": lambda run: " ".join(map(printable, command_of(run))) or None,
    "exit code": lambda run: run.exit_code,
    "processes": lambda run: len(run.processes),
    "GPUs": lambda run: len(run.gpus) or None,
    "GPU": lambda run: ", ".join(dict.fromkeys(_main_gpus(run))) or None,
    "driver": _of_first_gpu("driver"),
    "CUDA of the driver": _of_first_gpu("cuda"),
    "power limit (W)": _of_first_gpu("power_limit_w"),
}
_SETTINGS: dict[str, _Value] = {
    "libcupti": lambda run: _version(run.processes[0].cupti_version) if run.processes else None,
    "Python": lambda run: (run.processes[0].python or None) if run.processes else None,
    "--calls-only": lambda run: run.processes[0].calls_only if run.processes else None,
    "--cost": lambda run: run.processes[0].cost.budget if run.processes and run.processes[0].cost else None,
    "clock limits": lambda run: ", ".join(run.gpus[0].clock_reasons) if run.gpus else None,
}


def differences(old: Sequence[WatchFindings], new: Sequence[WatchFindings]) -> tuple[Difference, ...]:
    """The values of the runs that differ between the sides."""
    return tuple(_differences(old, new))


def _differences(old: Sequence[WatchFindings], new: Sequence[WatchFindings]) -> Iterator[Difference]:
    yield from _unlike(_MACHINE, old, new)
    yield from _other_libraries(old, new)
    yield from _unlike(_SETTINGS, old, new)
    before_mhz, after_mhz = _clock(old), _clock(new)
    if before_mhz and after_mhz and abs(after_mhz / before_mhz - 1) >= _CLOCKS_DIFFER:
        yield Difference("SM clock (MHz)", round(before_mhz), round(after_mhz))


def _unlike(
    values: Mapping[str, _Value], old: Sequence[WatchFindings], new: Sequence[WatchFindings]
) -> Iterator[Difference]:
    for name, value in values.items():
        before, after = (tuple(dict.fromkeys(map(value, side))) for side in (old, new))
        if set(before) != set(after) and {*before, *after} != {None}:
            yield Difference(name, _words(before), _words(after))


def _other_libraries(old: Sequence[WatchFindings], new: Sequence[WatchFindings]) -> Iterator[Difference]:
    """The libraries whose versions are known on both sides, and differ."""
    before, after = (_libraries(side) for side in (old, new))
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Difference(name, _words(sorted(before[name])), _words(sorted(after[name])))


def _libraries(runs: Sequence[WatchFindings]) -> Mapping[str, set[str]]:
    """The versions of each library in the main processes of runs."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        found = main_sequence(run)
        for name, version in found[0].libraries.items() if found is not None else ():
            versions.setdefault(name, set()).add(version)
    return versions


def require_same_kind(old: Sequence[WatchFindings], new: Sequence[WatchFindings]) -> None:
    """Raise NotComparable for runs on other models of GPU."""
    before, after = ({model for run in side for model in _main_gpus(run) if model} for side in (old, new))
    if before and after and before != after:
        raise NotComparable(f"The old runs are of {_words(sorted(before))}, the new ones of {_words(sorted(after))}.")


def _clock(runs: Sequence[WatchFindings]) -> float | None:
    clocks = [gpu.sm_clock_mhz for run in runs for gpu in run.gpus if gpu.sm_clock_mhz]
    return statistics.median(clocks) if clocks else None


def _words(values: Iterable[object]) -> object:
    known = [value for value in values if value is not None]
    return known[0] if len(known) == 1 else " or ".join(map(str, known)) or None
