"""Settings of the screen: one TOML file, every key optional."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, SCREENS, VICTIM_KEYS, Action, all_actions

DOCUMENT = """\
# Settings of stallscope's screen. Every key is optional; the values below are the defaults.
# The file is $STALLSCOPE_SETTINGS, else $XDG_CONFIG_HOME/stallscope/settings.toml,
# else ~/.config/stallscope/settings.toml.

theme = "textual-dark"    # any theme of Textual, such as textual-light, nord, gruvbox, solarized-light
ascii = false             # draw with ASCII characters only, like --ascii
frames_per_second = 10    # redraws per second, 1 to 30
quiet_seconds = 2.0       # measuring time of the baseline in seconds, 0.5 to 60
history_seconds = 60      # time span of the heat map in seconds, 10 to 600
freeze_above_ms = 1.0     # threshold of "freeze on stall" in milliseconds

[keys]                    # keys of actions: Textual's key names, separated by commas
"""

_RANGES: dict[str, tuple[float, float]] = {
    "frames_per_second": (1, 30),
    "quiet_seconds": (0.5, 60),
    "history_seconds": (10, 600),
    "freeze_above_ms": (0.001, 1e6),
}


class SettingsError(Exception):
    """The settings file is invalid; the text is one sentence for the user."""


@dataclass(frozen=True)
class Settings:
    """All settings; ``keys`` maps action names to keys."""

    theme: str = "textual-dark"
    ascii: bool = False
    frames_per_second: float = 10
    quiet_seconds: float = 2.0
    history_seconds: float = 60
    freeze_above_ms: float = 1.0
    keys: Mapping[str, str] = field(default_factory=dict)


def document() -> str:
    """A commented settings file with all defaults."""
    lines = [f'# {action.name} = "{action.keys}"'.ljust(40) + f"# {action.description}" for action in all_actions()]
    return DOCUMENT + "\n".join(lines) + "\n"


def path(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the settings file."""
    known = os.environ if environment is None else environment
    if known.get("STALLSCOPE_SETTINGS"):
        return Path(known["STALLSCOPE_SETTINGS"])
    home = known.get("XDG_CONFIG_HOME") or os.path.join(known.get("HOME", "/"), ".config")
    return Path(home) / "stallscope" / "settings.toml"


def load(file: Path | None = None) -> Settings:
    """The settings in ``file``; the defaults where it does not exist. Raises SettingsError."""
    file = path() if file is None else file
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from error
    try:
        return _validated(values)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error


def _validated(values: Mapping[str, Any]) -> Settings:
    defaults = Settings()
    for name, value in values.items():
        if name == "keys":
            continue
        if not hasattr(defaults, name):
            raise SettingsError(f"there is no setting {name}")
        kind = type(getattr(defaults, name))
        number = kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number and not isinstance(value, kind):
            raise SettingsError(f"{name} = {value!r} should be like {getattr(defaults, name)!r}")
        if name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
            raise SettingsError(f"{name} = {value} is not between {_RANGES[name][0]:g} and {_RANGES[name][1]:g}")
    return Settings(**{**values, "keys": _keys(values.get("keys", {}))})


def _keys(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) and value for value in values.values()):
        raise SettingsError('[keys] takes lines like pause = "p"')
    names = {action.name for action in all_actions()}
    for name in values:
        if name not in names:
            raise SettingsError(f"[keys] knows no action {name}")
    probes = dict.fromkeys((*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY), "a probe")
    for screen, actions in SCREENS.items():
        _check_unique(values, actions, dict(probes) if screen == "monitor" else {})
    return dict(values)


def _check_unique(values: Mapping[str, str], actions: tuple[Action, ...], users: dict[str, str]) -> None:
    """Raise SettingsError where two of a screen's ``actions`` have the same key, or one that ``users`` has."""
    for action in actions:
        for key in values.get(action.name, action.keys).split(","):
            if key.strip() in users:
                raise SettingsError(f'the key "{key.strip()}" is used by {users[key.strip()]} and by {action.name}')
            users[key.strip()] = action.name


def with_ascii(settings: Settings, ascii_only: bool) -> Settings:
    """``settings`` with ASCII on or off."""
    return replace(settings, ascii=ascii_only)
