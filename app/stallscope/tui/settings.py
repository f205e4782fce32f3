"""The settings: one documented file in TOML, all of it optional."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stallscope.tui.actions import ACTIONS, AGGRESSOR_KEYS, CHECK_ACTIONS, HOST_KEY, VICTIM_KEYS, Action

DOCUMENT = """\
# Settings of stallscope's screen. Everything here is optional; what stands here are the defaults.
# The file is read from $STALLSCOPE_SETTINGS, else $XDG_CONFIG_HOME/stallscope/settings.toml,
# else ~/.config/stallscope/settings.toml.

theme = "textual-dark"    # any theme of Textual, such as textual-light, nord, gruvbox, solarized-light
ascii = false             # draw with ASCII letters only, as --ascii does
frames_per_second = 10    # 1 to 30
quiet_seconds = 2.0       # how long quiet is measured, 0.5 to 60
history_seconds = 60      # what the heat map spans, 10 to 600
freeze_above_ms = 1.0     # the stall at which the view freezes, once that is switched on

[keys]                    # other keys for actions: a name of Textual, several by commas
"""

_RANGES: dict[str, tuple[float, float]] = {
    "frames_per_second": (1, 30),
    "quiet_seconds": (0.5, 60),
    "history_seconds": (10, 600),
    "freeze_above_ms": (0.001, 1e6),
}


class SettingsError(Exception):
    """The file cannot be used; the text is one sentence for the user."""


@dataclass(frozen=True)
class Settings:
    """What can be set; ``keys`` has other keys for actions by their names."""

    theme: str = "textual-dark"
    ascii: bool = False
    frames_per_second: float = 10
    quiet_seconds: float = 2.0
    history_seconds: float = 60
    freeze_above_ms: float = 1.0
    keys: Mapping[str, str] = field(default_factory=dict)


def document() -> str:
    """The documented file with every default."""
    both = dict.fromkeys((*ACTIONS, *CHECK_ACTIONS))
    lines = [f'# {action.name} = "{action.keys}"'.ljust(40) + f"# {action.what}" for action in both]
    return DOCUMENT + "\n".join(lines) + "\n"


def path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the file is looked for."""
    known = os.environ if environment is None else environment
    if known.get("STALLSCOPE_SETTINGS"):
        return Path(known["STALLSCOPE_SETTINGS"])
    home = known.get("XDG_CONFIG_HOME") or os.path.join(known.get("HOME", "/"), ".config")
    return Path(home) / "stallscope" / "settings.toml"


def load(file: Path | None = None) -> Settings:
    """The settings of ``file``, the defaults where there is none. Raises SettingsError."""
    file = path() if file is None else file
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from error
    try:
        return _checked(told)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error


def _checked(told: Mapping[str, Any]) -> Settings:
    usual = Settings()
    for name, value in told.items():
        if name == "keys":
            continue
        if not hasattr(usual, name):
            raise SettingsError(f"there is no setting {name}")
        kind = type(getattr(usual, name))
        number = kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number and not isinstance(value, kind):
            raise SettingsError(f"{name} = {value!r} should be like {getattr(usual, name)!r}")
        if name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
            raise SettingsError(f"{name} = {value} is not between {_RANGES[name][0]:g} and {_RANGES[name][1]:g}")
    return Settings(**{**told, "keys": _keys(told.get("keys", {}))})


def _keys(told: Any) -> dict[str, str]:
    if not isinstance(told, dict) or not all(isinstance(value, str) and value for value in told.values()):
        raise SettingsError('[keys] takes lines like pause = "p"')
    names = {action.name for action in (*ACTIONS, *CHECK_ACTIONS)}
    for name in told:
        if name not in names:
            raise SettingsError(f"[keys] knows no action {name}")
    _apart(told, ACTIONS, dict.fromkeys((*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY), "a probe"))
    _apart(told, CHECK_ACTIONS, {})
    return dict(told)


def _apart(told: Mapping[str, str], actions: Iterable[Action], taken: dict[str, str]) -> None:
    """Raise SettingsError when two of one screen's ``actions`` want the same key, or one that is ``taken``."""
    for action in actions:
        for key in told.get(action.name, action.keys).split(","):
            if key.strip() in taken:
                raise SettingsError(f'the key "{key.strip()}" is wanted by {taken[key.strip()]} and by {action.name}')
            taken[key.strip()] = action.name


def with_ascii(settings: Settings, ascii_only: bool) -> Settings:
    """``settings`` with ASCII on or off."""
    return replace(settings, ascii=ascii_only)
