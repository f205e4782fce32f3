"""Settings of the screen: one TOML file, every key optional."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallprobes.errors import FileMissing, FileNotRead, OversizedData, StallprobesError
from stallprobes.files import input_file
from stallprobes.spelling import nearest
from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, SCREENS, VICTIM_KEYS, Action, all_actions

# Smallest and largest value of each setting that is a number.
_RANGES: dict[str, tuple[float, float]] = {
    "frames_per_second": (1, 30),
    "quiet_seconds": (0.5, 60),
    "history_seconds": (10, 600),
    "freeze_above_ms": (0.001, 1e6),
}


# Largest size (bytes) of a file of settings; the documented file has about 10 KiB.
_MOST_BYTES = 256 * 1024
# Largest number of characters of a setting's name or value in an error message. The search for a name similar to an
# unknown name ignores further characters.
_LONGEST_VALUE = 60
# Modifiers of a key by Textual's names.
_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
# Keys of the program itself, which no screen receives.
_RESERVED = {"ctrl+c": "quit", "ctrl+q": "quit", "ctrl+z": "suspend", "ctrl+p": "the command palette"}


# Screens on which the keys of all probes are in use.
_WITH_PROBES = ("monitor",)


class SettingsError(StallprobesError):
    """The settings file is invalid; the text is one sentence for the user."""


@dataclass(frozen=True)
class Settings:
    """All settings; ``keys`` maps action names to keys."""

    theme: str = "textual-dark"
    ascii: bool = False
    frames_per_second: float = 10
    quiet_seconds: float = 2.0
    history_seconds: float = 60
    gpm_counters: bool = True
    freeze_above_ms: float = 1.0
    remedy_language: str = "cuda"
    keys: Mapping[str, str] = field(default_factory=dict)


def document() -> str:
    """A commented settings file with all defaults: ``settings.txt``, and the actions with their keys."""
    lines = [f'# {action.name} = "{action.keys}"'.ljust(40) + f"# {action.description}" for action in all_actions()]
    return Path(__file__).with_suffix(".txt").read_text(encoding="utf-8") + "\n".join(lines) + "\n"


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
        return _validated(tomllib.loads(input_file.read(file, _MOST_BYTES).decode()))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: it is not text in UTF-8") from error
    except FileMissing:
        return Settings()
    except FileNotRead as error:
        raise SettingsError(str(error)) from error
    except OversizedData as error:
        raise SettingsError(f"{file}: the file is larger than {_MOST_BYTES // 1024} KiB") from error
    except RecursionError as error:
        raise SettingsError(f"{file}: it is nested too deeply") from error
    except (SettingsError, ValueError) as error:
        # What TOML and UTF-8 do not allow, and integers of thousands of digits.
        raise SettingsError(f"{file}: {error}") from error


def _validated(values: Mapping[str, Any]) -> Settings:
    defaults = Settings()
    for name, value in values.items():
        if name == "keys":
            continue
        if not hasattr(defaults, name):
            raise SettingsError(f"there is no setting {_shown(name)}{_nearest(name, vars(defaults))}")
        kind = type(getattr(defaults, name))
        fits = isinstance(value, (int, float) if kind in (int, float) else kind)
        # In Python true is a number.
        if not fits or isinstance(value, bool) is not (kind is bool):
            wanted = "true or false" if kind is bool else f"like {getattr(defaults, name)!r}"
            raise SettingsError(f"{name} = {_shown(value)} should be {wanted}")
        if name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
            wanted = f"between {_RANGES[name][0]:g} and {_RANGES[name][1]:g}"
            raise SettingsError(f"{name} = {_shown(value)} is not {wanted}")
    if "theme" in values:
        _check_theme(values["theme"])
    if "remedy_language" in values:
        _check_language(values["remedy_language"])
    return Settings(**{**values, "keys": _keys(values.get("keys", {}))})


def _keys(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) and value for value in values.values()):
        raise SettingsError('[keys] takes lines like pause = "p"')
    names = {action.name for action in all_actions()}
    for name in values:
        if name not in names:
            raise SettingsError(f"[keys] knows no action {_shown(name)}{_nearest(name, names)}")
    changed = {name: ",".join(_key(key.strip(), name) for key in keys.split(",")) for name, keys in values.items()}
    # The last victim's key was free once, so an action may have it.
    probes = dict.fromkeys((*AGGRESSOR_KEYS, *VICTIM_KEYS[:-1], HOST_KEY), "a probe")
    digits = dict.fromkeys(AGGRESSOR_KEYS, "a probe")
    for screen, actions in SCREENS.items():
        used = probes if screen in _WITH_PROBES else digits if screen == "timeline" else {}
        _check_unique(changed, actions, _RESERVED | used)
    return changed


def _check_unique(values: Mapping[str, str], actions: tuple[Action, ...], users: dict[str, str]) -> None:
    """Raise SettingsError where two of a screen's ``actions`` have the same key, or one that ``users`` has."""
    yielding = [action for action in actions if "yields" in action.marks and action.name not in values]
    for action in (*(other for other in actions if other not in yielding), *yielding):
        for key in values.get(action.name, action.keys).split(","):
            if users.get(key, action.name) != action.name and action not in yielding:
                raise SettingsError(f'the key "{key}" is used by {users[key]} and by {action.name}')
            users[key] = action.name


def _check_theme(theme: str) -> None:
    from textual.theme import BUILTIN_THEMES

    if theme not in BUILTIN_THEMES:
        raise SettingsError(f"there is no theme {_shown(theme)}{_nearest(theme, BUILTIN_THEMES, all_of_them=True)}")


def _check_language(language: str) -> None:
    from stallprobes.patterns.remedy_code import CodeLanguage

    if language not in list(CodeLanguage):
        nearest = _nearest(language, CodeLanguage, all_of_them=True)
        raise SettingsError(f"remedy_language = {_shown(language)} is no language of remedies{nearest}")


def _key(key: str, action: str) -> str:
    """Textual's name of ``key``. Raises SettingsError for a name that no key has."""
    from textual.keys import ASCII_KEY_NAMES, KEY_ALIASES, Keys, _character_to_key

    characters = {_character_to_key(chr(code)) for code in (*range(0x20, 0x7F), *range(0xA1, 0x100))}
    known = {key_name.value for key_name in Keys if not key_name.value.startswith("<")} | characters
    known |= {*ASCII_KEY_NAMES.values(), *KEY_ALIASES} - {""}
    *modifiers, base = key.split("+") if len(key) > 1 else (key,)
    valid = (len(base) == 1 and base.isprintable()) or base in known
    if key in known or (valid and all(modifier in _MODIFIERS for modifier in modifiers)):
        base = _character_to_key(base) if len(base) == 1 else base
        return "+".join((*sorted(modifiers), base))
    raise SettingsError(f"{action} = {_shown(key)}: no key has this name{_nearest(key, known)}")


def _nearest(name: str, known: Iterable[str], all_of_them: bool = False) -> str:
    """The end of an error about an unknown ``name``: the nearest of ``known``, "" or ``all_of_them`` without one."""
    near = nearest(name[:_LONGEST_VALUE], known)
    if near:
        return f"; did you mean {near}?"
    return f"; there are: {', '.join(known)}" if all_of_them else ""


def _shown(value: object) -> str:
    """``value`` as in the file, shortened."""
    text = str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
