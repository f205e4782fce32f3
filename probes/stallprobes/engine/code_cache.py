"""Key of compiled code in numba's cache on disk, and removal of the entries that a former key has left.

numba compares an entry with the source file of its function only: after a change of a callee or a constant in another
module, it would load machine code of the former one. The key made here is a digest of all that a function is compiled
from: its bytecode, the way it is compiled, and the functions and values that it refers to, and so on for each of them.
It is taken from the objects that are compiled, so that there is no list of files that could lack one.

numba chooses the folder: NUMBA_CACHE_DIR, ``__pycache__`` beside the module, or the user's cache folder.
"""

from __future__ import annotations

import hashlib
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import llvmlite  # type: ignore[import-untyped, unused-ignore]
import numba  # type: ignore[import-untyped, unused-ignore]
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba.core import caching, config, types  # type: ignore[import-untyped, unused-ignore]

# What belongs to these libraries is in the key by its name, and compiled code by the versions of its compiler.
_LIBRARIES = frozenset({"builtins", "numba", "llvmlite", "numpy"})
_VERSIONS = f"numba {numba.__version__}, llvmlite {llvmlite.__version__}"
_DIGITS = 20
# Entries of a key begin with a letter, those of numba's own with the number of a line.
_KEY = re.compile(rf"k[0-9a-f]{{{_DIGITS}}}")
_PYTHON = f"py{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"
_FILE = re.compile(rf"(?P<module>\w+)\.(?P<function>.+)-(?P<key>\w+)\.{re.escape(_PYTHON)}\.(nbi|\d+\.nbc)")


class _CacheFolder(NamedTuple):
    folder: Path
    source: Path


_options: dict[FunctionType, str] = {}
_keys: dict[FunctionType, str] = {}
_places: dict[FunctionType, _CacheFolder] = {}


def set_options(function: Any, options: str) -> None:
    """Record how ``function`` is compiled, decorator, signature and options, as a part of every key that covers it."""
    _options[function] = options


def set_key(function: Any) -> str:
    """Give ``function`` the key under which numba is to store and find its code; returns it.

    Raises TypeError if the function uses a value that a key cannot cover.
    """
    # All functions in the order of their first use, each with the places of those it refers to.
    functions, places = [function], {function: 0}
    digest = hashlib.sha256(_VERSIONS.encode())
    for one in functions:
        content = _content(one)
        for used in content.functions:
            if used not in places:
                places[used] = len(functions)
                functions.append(used)
        parts = (content.digest, _options.get(one), [places[used] for used in content.functions])
        digest.update(repr(parts).encode())
    _keys[function] = "k" + digest.hexdigest()[:_DIGITS]
    return _keys[function]


def remove_former(function: Any) -> None:
    """Remove entries that no function uses any more from the cache folder of ``function``, which was just compiled.

    These are entries of this function under another key, of functions and modules that no longer exist, and entries
    that numba has named. Those of other versions of Python stay.
    """
    place = _places.get(function)
    if place is None or not place.source.is_file():
        return
    mine = (place.source.stem, _file_name(function))
    used = {(other.source.stem, _keys[one]) for one, other in list(_places.items())}
    # Another process may remove the same entries, and those of another user may be protected.
    with suppress(OSError):
        found = [match for path in place.folder.iterdir() if (match := _FILE.fullmatch(path.name))]
        modules = {one["module"] for one in found}
        defined = {module: _defined(place.source.with_name(f"{module}.py")) for module in modules}
        for one in found:
            module, name, key = one["module"], one["function"], one["key"]
            exists = _KEY.fullmatch(key) and name.rpartition(".")[2] in defined[module]
            if (module, key) not in used and ((module, name) == mine or not exists):
                (place.folder / one.string).unlink(missing_ok=True)


def _file_name(function: Any) -> str:
    return str(function.__qualname__).replace("<", "").replace(">", "")


def _defined(source: Path) -> set[str]:
    """The names of the functions in a source file; none if there is no such file."""
    return set(re.findall(r"\bdef (\w+)", source.read_text(encoding="utf-8"))) if source.is_file() else set()


class _Content:
    """What one function is compiled from, without that of the functions it refers to: ``digest`` and ``functions``."""

    def __init__(self, function: FunctionType) -> None:
        self.functions: list[FunctionType] = []
        self._texts: list[str] = []
        self._globals, self._doc = function.__globals__, function.__doc__
        code = function.__code__
        closure = tuple(cell.cell_contents for cell in function.__closure__ or ())
        defaults = tuple(sorted((function.__kwdefaults__ or {}).items()))
        self._add((closure, function.__defaults__, defaults), code.co_names)
        self._add_code(code)
        self.digest = hashlib.sha256("\0".join(self._texts).encode()).digest()

    def _add_code(self, code: CodeType) -> None:
        flow = code.co_code + code.co_exceptiontable
        self._texts.append(f"code {flow.hex()} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}")
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant)
            else:
                # A change of the docstring alone compiles nothing.
                self._add("" if constant is self._doc and constant is not None else constant, ())
        for name in code.co_names:
            self._texts.append(name)
            if name in self._globals:
                self._add(self._globals[name], code.co_names)

    def _add(self, value: Any, names: tuple[str, ...]) -> None:
        """Add what ``value`` means to code that uses ``names``."""
        kind = type(value).__name__
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._texts.append(f"{kind} {value!r}")
        elif isinstance(value, tuple):
            self._texts.append(f"{kind} of {len(value)}")
            for item in value:
                self._add(item, names)
        elif isinstance(value, frozenset):
            self._texts.append(f"{kind} {sorted(map(repr, value))}")
        elif isinstance(value, (ModuleType, type)):
            self._texts.append(f"{kind} {value.__name__}")
            if _package(value) not in _LIBRARIES:
                for name in names:
                    if hasattr(value, name):
                        self._texts.append(name)
                        self._add(getattr(value, name), names)
        elif isinstance(function := _function(value), FunctionType):
            self._texts.append(f"{kind} {function.__qualname__}")
            if _package(function) not in _LIBRARIES:
                self.functions.append(function)
        elif isinstance(value, BuiltinFunctionType):
            self._texts.append(f"{kind} {value.__module__}.{value.__qualname__}")
        # In this order: numba's type is abstract, and to reject a value takes it milliseconds.
        elif isinstance(value, ir.Type) or isinstance(value, types.Type):  # noqa: SIM101
            self._texts.append(f"{kind} {value}")
        else:
            raise TypeError(f"code that uses {value!r} cannot be cached: a key does not cover its type")


_content = cache(_Content)


def _function(value: Any) -> Any:
    """The function that numba has made a dispatcher or an intrinsic of, else ``value``."""
    return value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", value)


def _package(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return str(name).partition(".")[0]


class CodeLocator:
    """Locator of numba's cache: names and stamps the entries of functions with a key, in the folder numba chooses."""

    @classmethod
    def from_function(cls, function: Any, source: str) -> Any:
        """A locator of ``function``; None if it has no key, and where no cache folder can be written."""
        key = _keys.get(function)
        if key is None:
            return None
        others = (other for other in caching.CacheImpl._locator_classes if other is not cls)
        locator = next(filter(None, (other.from_function(function, source) for other in others)), None)
        if locator is not None:
            locator.get_source_stamp = lambda: key
            locator.get_disambiguator = lambda: key
            _places[function] = _CacheFolder(Path(locator.get_cache_path()), Path(source))
        return locator


caching.CacheImpl._locator_classes = [CodeLocator, *caching.CacheImpl._locator_classes]
# Locators that the environment names would come before this one.
config.CACHE_LOCATOR_CLASSES = ""
