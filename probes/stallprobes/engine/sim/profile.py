"""Profiles of simulated machines: TOML files of this package, whose parameters ``--sim-set`` overrides.

A file may name a ``base`` profile and then holds only the differences. Times are in microseconds in the files and in
nanoseconds everywhere else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, get_type_hints

from stallprobes.engine.sim import parameters
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.errors import StallprobesError
from stallprobes.spelling import nearest

# Name of the profile of the simulation where --sim has no value.
DEFAULT = "h200"
# Largest value of a parameter of a profile.
_MOST = 1e9
# Largest number of characters of a profile's name, key or value in an error message.
_LONGEST_SHOWN = 80
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
    """The profile ``name`` (None: the default one) with ``settings`` overridden.

    Raises ProfileError if there is no such profile, or a setting is invalid.
    """
    name = DEFAULT if name is None else name
    data, settings = _read(name), dict(settings or {})
    for key, value in settings.items():
        _set(data, key, value)
    sections: dict[str, Any] = {key: kind(**data[key]) for key, kind in SECTIONS.items()}
    for name_of in DELAYS:
        _check_pair(f"locks.{name_of}_us", *(data["locks"].get(f"{name_of}_{end}", 0.0) for end in ("us", "p99_us")))
    calls = {call: (float(median), float(p99)) for call, (median, p99) in data["calls"].items()}
    return Profile(name=name, source=data["source"], settings=settings, calls=calls, **sections)


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
    if name not in names():
        raise ProfileError(
            f"there is no profile {_shown(name)}{_nearest(name, names())}; there are {', '.join(names())}"
        )
    # Parsed once, and copied: the caller overrides values in its sections.
    return {key: dict(value) if isinstance(value, dict) else value for key, value in _shipped(name).items()}


@cache
def _shipped(name: str) -> dict[str, Any]:
    """The profile ``name``, each section over that of its base."""
    data = tomllib.loads((_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    base = _shipped(data.pop("base")) if "base" in data else {}
    sections = {key: {**base.get(key, {}), **value} for key, value in data.items() if isinstance(value, dict)}
    return base | data | sections


def _check(key: str, kind: str, above: float | None, value: object) -> None:
    """Raise ProfileError unless ``value`` of the setting ``key`` is of ``kind``, and within the limits."""
    wanted = {"str": "a text", "bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
    types: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}
    if not isinstance(value, types[kind]) or (isinstance(value, str) and not value.isprintable()):
        raise ProfileError(f"--sim-set: {key} is {_shown(value)}, it must be {wanted}")
    if kind in ("str", "bool"):
        return
    assert isinstance(value, (int, float))
    if isinstance(value, int) and value > _MOST:
        # Python refuses to format an integer of thousands of digits.
        raise ProfileError(f"--sim-set: {key} is too large, it must be {wanted} up to {_MOST:.0f}")
    if not value <= _MOST:
        raise ProfileError(f"--sim-set: {key} is {value}, it must be {wanted} up to {_MOST:.0f}")
    if above is not None and value <= above:
        raise ProfileError(f"--sim-set: {key} is {value}, it must be above {above:g}")
    if value < 0:
        raise ProfileError(f"--sim-set: {key} is {value}, it must not be below 0")


def _check_pair(key: str, median: float, p99: float) -> None:
    if not median <= p99:
        raise ProfileError(f"--sim-set: {key} is {median:g}, it must not be above its 99th percentile, {p99:g}")
    if p99 > median * _WIDEST > 0:
        raise ProfileError(f"--sim-set: {key} is {median:g}, too far below its 99th percentile, {p99:g}")


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
    _check(f"{section}.{name}", kind, parameter.metadata.get("above"), value)
    data[section][name] = value


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
        _check(key, "float", None, part)
    median = float(parts[0])
    p99 = float(parts[1]) if len(parts) == 2 else median * old[1] / old[0] if old[0] else median
    _check_pair(key, median, p99)
    if p99 > median == 0:
        raise ProfileError(f"--sim-set: {key} is 0, and its 99th percentile {p99:g}: both must be 0, or neither")
    return [median, p99]


def _shown(value: object) -> str:
    """``value`` for a message, cut."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _nearest(word: str, known: Iterable[str]) -> str:
    close = nearest(word, known)
    return f", did you mean {close}?" if close else ""
