"""Profiles of simulated machines: TOML files that are read, validated, and overridden by ``--sim-set``.

A file may name a ``base`` profile and then holds only the differences. Times are in microseconds in the files and in
nanoseconds everywhere else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from stallprobes.engine.sim import parameters
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.errors import FileNotRead, OversizedData, StallprobesError, reason_of
from stallprobes.files import input_file
from stallprobes.spelling import nearest

# Name of the profile of the simulation where --sim has no value.
DEFAULT = "h200"
# Largest value of a parameter of a profile.
_MOST = 1e9
# Largest number of characters of a profile's name, key or value in an error message.
_LONGEST_SHOWN = 80
# Largest size (bytes) of a profile's file that is read; the largest file of the package has 5 KiB.
_MOST_BYTES = 1 << 18
# Largest ratio of a 99th percentile to its median in a profile. Up to this ratio, a table of QUANTILES values
# represents a latency distribution well enough.
_WIDEST = 1e6
# Delays in a profile's section "locks" that vary at random. ``NAME_us`` is the median of a delay, ``NAME_p99_us`` its
# 99th percentile.
DELAYS = ("spin_react", "wake", "timer", "poll", "callback_wake")


class ProfileError(StallprobesError):
    """A profile or a parameter that cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True)
class Profile:
    """Parameters of a simulated machine.

    ``calls``: median and 99th percentile in us of each API call on an idle machine. ``settings``: the overridden
    parameters.
    """

    name: str
    source: str
    settings: Mapping[str, str]
    machine: parameters.MachineParameters
    engine: parameters.EngineParameters
    copy: parameters.CopyParameters
    locks: parameters.LockParameters
    memory: parameters.MemoryParameters
    drag: parameters.SlowdownParameters
    sensors: parameters.SensorParameters
    calls: Mapping[str, tuple[float, float]]

    @property
    def title(self) -> str:
        """Name of the machine with its number of GPUs."""
        machine = self.machine
        return f"{machine.gpus} × {machine.title}" if machine.gpus > 1 else machine.title

    @property
    def label(self) -> str:
        """The name and the overridden parameters, with which results are labelled."""
        changed = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name} with {changed}" if changed else self.name

    @cached_property
    def costs(self) -> dict[str, LatencyDistribution]:
        """Distribution of the latency of each call."""
        return {call: LatencyDistribution(1000 * p50, 1000 * p99) for call, (p50, p99) in self.calls.items()}

    def delay(self, name: str) -> LatencyDistribution:
        """Distribution of one of the DELAYS of the section locks, by its median and 99th percentile."""
        return LatencyDistribution(
            1000 * getattr(self.locks, f"{name}_us"), 1000 * getattr(self.locks, f"{name}_p99_us")
        )


# Dataclass of each section of a profile, by the section's name. The fields of the dataclass are the section's
# parameters.
SECTIONS = {
    name: kind for name, kind in get_type_hints(Profile).items() if isinstance(kind, type) and is_dataclass(kind)
}


@cache
def names() -> tuple[str, ...]:
    """The names of the profiles in the package, the default one first."""
    profiles = sorted(entry.name[:-5] for entry in _folder().iterdir() if entry.name.endswith(".toml"))
    return tuple(sorted(profiles, key=lambda name: name != DEFAULT))


def load(name: str | None = None, settings: Mapping[str, str] | None = None) -> Profile:
    """The profile ``name`` (None: the default one; a path if it ends in ``.toml``) with ``settings`` overridden.

    Raises ProfileError if there is no such profile, it is invalid, or a setting is.
    """
    name = DEFAULT if name is None else name
    data = _read(name)
    label = _label(name)
    plain = _build(label, data, {})
    if not settings:
        return plain
    for key, value in settings.items():
        _set(data, key, value)
    return _build(label, data, dict(settings))


def _label(name: str) -> str:
    """The name with which results are labelled; a file never gets the name of a profile of the package."""
    stem = Path(name).stem
    return stem if name.endswith(".toml") and stem not in names() else name


def parse_setting(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair, for ``Options.sim_set``. Raises ProfileError for another form or an unknown key.

    ``load`` checks the value.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise ProfileError(f"--sim-set takes KEY=VALUE, such as timeslice_us=4000, not {_shown(text)}")
    _place(key, _keys(_read(DEFAULT)))
    return key, value


def settable(name: str | None = None) -> list[tuple[str, str, str]]:
    """All parameters of the profile ``name`` that can be overridden, by section: full key, value as text, and meaning.

    Raises ProfileError.
    """
    loaded = load(name)
    settings = []
    for section, kind in SECTIONS.items():
        for item in fields(kind):
            if item.type != "str":
                value = getattr(getattr(loaded, section), item.name)
                text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
                what = str(item.metadata.get("what", item.name.replace("_", " ")))
                settings.append((f"{section}.{item.name}", text, what))
    for call, (median, p99) in loaded.calls.items():
        settings.append((f"calls.{call}", f"{median:g}/{p99:g}", "median and 99th percentile of the call, us"))
    return settings


def _folder() -> Any:
    return resources.files("stallprobes.engine.sim") / "profiles"


def _read(name: str) -> dict[str, Any]:
    if name.endswith(".toml"):
        data = _tables(lambda: _content(name), name)
    elif name in names():
        # Parsed once, and copied: the caller overrides values in its sections.
        return {key: dict(value) if isinstance(value, dict) else value for key, value in _shipped(name).items()}
    else:
        raise ProfileError(
            f"there is no profile {_shown(name)}{_nearest(name, names())}; there are {', '.join(names())}"
        )
    return _with_base(name, name, data)


@cache
def _shipped(name: str) -> dict[str, Any]:
    """The profile of the package called ``name``."""
    where = f"profile {name}"
    return _with_base(name, where, _tables((_folder() / f"{name}.toml").read_bytes, where))


def _content(name: str) -> bytes:
    """The content of the file ``name``. Raises ProfileError."""
    try:
        return input_file.read(name, _MOST_BYTES)
    except FileNotRead as error:
        raise ProfileError(str(error)) from error
    except OversizedData as error:
        raise ProfileError(f"{name} is not a profile: {error}, which no profile has") from error


def _tables(read: Callable[[], bytes], where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read().decode())
    except OSError as error:
        raise ProfileError(f"{where} cannot be read: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{where} is damaged: it is not text in UTF-8") from error
    except RecursionError as error:
        raise ProfileError(f"{where} is damaged: it is nested too deeply") from error
    except ValueError as error:
        # What TOML and UTF-8 do not allow, and integers of thousands of digits.
        raise ProfileError(f"{where} is damaged: {error}") from error


def _with_base(name: str, where: str, data: dict[str, Any]) -> dict[str, Any]:
    base = data.pop("base", None)
    if base is None:
        return data
    if base == name or base not in names():
        raise ProfileError(f"{where} is damaged: its base {_shown(base)} is not one of {', '.join(names())}")
    data.setdefault("source", f"not given; unspecified parameters are those of {base}")
    return _over(_read(base), data)


def _over(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """``base`` updated with ``data``, section by section."""
    updated = dict(base)
    for key, value in data.items():
        old = base.get(key)
        updated[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return updated


def _build(name: str, data: dict[str, Any], settings: Mapping[str, str]) -> Profile:
    where = f"profile {name}"
    known = {*SECTIONS, "source", "calls"}
    for key in data:
        if key not in known:
            raise ProfileError(f"{where} is damaged: unknown key {_shown(key)}{_nearest(key, known)}")
    source = data.get("source")
    if not isinstance(source, str):
        rest = f'base = "{names()[0]}" takes what is missing from that profile'
        raise ProfileError(f'{where} is damaged: the key "source" is missing; {rest}')
    _check(where, "source", "str", None, source)
    sections = {key: _section(where, key, kind, data.get(key)) for key, kind in SECTIONS.items()}
    for name_of in DELAYS:
        median, p99 = (getattr(sections["locks"], f"{name_of}_{end}") for end in ("us", "p99_us"))
        _check_pair(where, f"locks.{name_of}_us", median, p99)
    calls = _calls(where, data.get("calls"))
    return Profile(name=name, source=source, settings=settings, calls=calls, **sections)


def _section(where: str, section: str, kind: type[Any], data: object) -> Any:
    if not isinstance(data, dict):
        raise ProfileError(f"{where} is damaged: it has no section {section}")
    known = {item.name: item for item in fields(kind)}
    for key in data:
        if key not in known:
            raise ProfileError(f"{where} is damaged: unknown key {_cut(f'{section}.{key}')}{_nearest(key, known)}")
    for key, item in known.items():
        if key not in data and item.default is MISSING:
            raise ProfileError(f"{where} is damaged: {section}.{key} is missing")
        if key in data:
            _check(where, f"{section}.{key}", str(item.type), item.metadata.get("above"), data[key])
    return kind(**data)


def _check(where: str, key: str, kind: str, above: float | None, value: object) -> None:
    wanted = {"str": "a text", "bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
    fine = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
    }[kind]
    if not fine or (isinstance(value, str) and not value.isprintable()):
        raise ProfileError(f"{where}: {key} is {_shown(value)}, it must be {wanted}")
    if isinstance(value, (int, float)) and kind in ("int", "float"):
        if isinstance(value, int) and value > _MOST:
            # Python refuses to format an integer of thousands of digits.
            raise ProfileError(f"{where}: {key} is too large, it must be {wanted} up to {_MOST:.0f}")
        if not value <= _MOST:
            raise ProfileError(f"{where}: {key} is {value}, it must be {wanted} up to {_MOST:.0f}")
        if above is not None and value <= above:
            raise ProfileError(f"{where}: {key} is {value}, it must be above {above:g}")
        if value < 0:
            raise ProfileError(f"{where}: {key} is {value}, it must not be below 0")


def _calls(where: str, data: object) -> dict[str, tuple[float, float]]:
    if not isinstance(data, dict):
        raise ProfileError(f"{where} is damaged: it has no section calls")
    calls = {}
    for call, pair in data.items():
        numbers = pair if isinstance(pair, list) else []
        for number in numbers:
            _check(where, f"calls.{call}", "float", None, number)
        if len(numbers) != 2 or numbers[0] > numbers[1] or (numbers[0] == 0 and numbers[1] > 0):
            raise ProfileError(f"{where}: calls.{call} is {_shown(pair)}, it must be [median, 99th percentile] in us")
        _check_pair(where, f"calls.{call}", *numbers)
        calls[call] = (float(numbers[0]), float(numbers[1]))
    known = _read(DEFAULT)["calls"]
    for call in calls:
        if call not in known:
            raise ProfileError(f"{where} is damaged: unknown key {_cut(f'calls.{call}')}{_nearest(call, known)}")
    for call in known:
        if call not in calls:
            raise ProfileError(f"{where} is damaged: calls.{call} is missing")
    return calls


def _check_pair(where: str, key: str, median: float, p99: float) -> None:
    if not median <= p99:
        raise ProfileError(f"{where}: {key} is {median:g}, it must not be above its 99th percentile, {p99:g}")
    if p99 > median * _WIDEST > 0:
        raise ProfileError(f"{where}: {key} is {median:g}, too far below its 99th percentile, {p99:g}")


def _keys(data: Mapping[str, Any]) -> list[str]:
    figures = [f"{section}.{item.name}" for section, kind in SECTIONS.items() for item in fields(kind)]
    return [*figures, *(f"calls.{call}" for call in data.get("calls", {}))]


def _place(key: str, known: Iterable[str]) -> tuple[str, str]:
    """Section and name of ``key``, which may omit the section if the name is unique."""
    known = list(known)
    matches = [full for full in known if key in (full, full.partition(".")[2])]
    if not matches:
        short = [full.partition(".")[2] for full in known]
        more = _nearest(key, [*known, *short]) or "; see: stallscope list --sim"
        raise ProfileError(f"the profile has no setting {_shown(key)}{more}")
    if len(matches) > 1:
        raise ProfileError(f"the setting {_shown(key)} could be {' or '.join(matches)}: write one of them")
    section, _, name = matches[0].partition(".")
    return section, name


def _set(data: dict[str, Any], key: str, text: str) -> None:
    section, name = _place(key, _keys(data))
    if section == "calls":
        data["calls"][name] = _pair(key, text, data["calls"][name])
        return
    parameter = next(item for item in fields(SECTIONS[section]) if item.name == name)
    kind = str(parameter.type)
    value: object = text
    if kind == "bool":
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif kind in ("int", "float"):
        value = _parsed(text)
    _check("--sim-set", f"{section}.{name}", kind, parameter.metadata.get("above"), value)
    data.setdefault(section, {})[name] = value


def _parsed(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _pair(key: str, text: str, old: list[float]) -> list[float]:
    """``MEDIAN/P99``, or ``MEDIAN``, which scales the 99th percentile."""
    parts = [_parsed(part) for part in text.split("/")]
    if len(parts) not in (1, 2) or not all(isinstance(part, (int, float)) for part in parts):
        raise ProfileError(f"--sim-set: {key} is {_shown(text)}, it must be MEDIAN or MEDIAN/P99 in us")
    for part in parts:
        _check("--sim-set", key, "float", None, part)
    median = float(parts[0])
    if len(parts) == 2:
        return [median, float(parts[1])]
    return [median, median * old[1] / old[0] if old[0] else median]


def _shown(value: object) -> str:
    """``value`` for a message: a value of a file can be as long as the file."""
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _nearest(word: str, known: Iterable[str]) -> str:
    close = nearest(word, known)
    return f", did you mean {close}?" if close else ""
