"""The key of compiled code in numba's cache, and what stays in the cache folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba.core import config

import stallprobes
from stallprobes.engine import code_cache, native

Compiled = Callable[[int], int]

# A compiled function and what it uses, each in a module of its own.
SOURCES = {
    "constants.py": (
        "from enum import IntEnum\n\nSTEP = 1\nLIMIT = 100\n\n\nclass Kind(IntEnum):\n    A = 3\n    B = 4\n"
    ),
    "deep.py": "from constants import STEP\n\n\ndef step(value):\n    return value + STEP\n",
    "callee.py": (
        "import constants\nfrom constants import Kind\nfrom deep import step\n\n\n"
        'def twice(value, more=0):\n    """Documentation."""\n'
        "    return step(step(value)) + more + Kind.A - Kind.A + constants.LIMIT - constants.LIMIT\n"
    ),
    "caller.py": "from callee import twice\n\n\ndef run(value):\n    return twice(value)\n",
}
OPTIONS = "@compiled()\n"
SIGNATURE = '@compiled("int64(int64)")\n'


def package(folder: Path, changed: dict[str, tuple[str, str]] | None = None) -> None:
    """Write the modules, with a text replaced in some of them, and their functions decorated."""
    for name, source in SOURCES.items():
        old, new = (changed or {}).get(name, ("", ""))
        assert old in source
        decorator = SIGNATURE if name == "caller.py" else OPTIONS
        header = "from stallprobes.engine.native import compiled\n"
        (folder / name).write_text(header + source.replace(old, new).replace("def ", decorator + "def "))


def caller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function ``run`` of the modules as they are now."""
    for name in SOURCES:
        sys.modules.pop(Path(name).stem, None)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        module = __import__("caller")
    for name in SOURCES:
        sys.modules.pop(Path(name).stem, None)
    return module.run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the test."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def key_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The key of ``run`` with changed modules; nothing is compiled."""

    def key(signature: str = "int64(int64)", **changed: tuple[str, str]) -> str:
        def without_compiling(wanted: str | None = None) -> Callable[[Any], Any]:
            def decorate(function: Any) -> Any:
                code_cache.set_options(function, signature if wanted else "inline")
                return function

            return decorate

        package(tmp_path, {f"{name}.py": change for name, change in changed.items()})
        with monkeypatch.context() as patch:
            patch.setattr(native, "compiled", without_compiling)
            return code_cache.set_key(caller(tmp_path, monkeypatch))

    return key


PRINT = """
import sys
# As in an engine, numba imports no linear algebra.
sys.modules["scipy"] = None
sys.path[:0] = {path!r}
from caller import run
print(run(10), sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values()))
"""


def test_a_change_of_a_callee_in_another_module_is_compiled(tmp_path: Path) -> None:
    modules, folder = tmp_path / "modules", tmp_path / "cache"
    modules.mkdir()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PRINT.format(path=[str(modules), *sys.path])]

    def start() -> str:
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    package(modules)
    assert start() == "12 0 1"
    assert start() == "12 1 0"
    files = {path.name for path in folder.rglob("*.nb*")}
    assert len(files) == 2
    # Only the callee changes, and neither its size nor its time.
    before = (modules / "deep.py").stat()
    package(modules, {"deep.py": ("value + STEP", "value - STEP")})
    os.utime(modules / "deep.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert start() == "8 0 1"
    # The former entry is removed.
    after = {path.name for path in folder.rglob("*.nb*")}
    assert len(after) == 2
    assert not files & after


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"caller": ("twice(value)", "twice(value) + 1")}, id="function"),
        pytest.param({"callee": ("+ more", "- more")}, id="callee"),
        pytest.param({"deep": ("value + STEP", "value - STEP")}, id="callee of a callee"),
        pytest.param({"callee": ("more=0", "more=1")}, id="default of an argument"),
        pytest.param({"constants": ("STEP = 1", "STEP = 2")}, id="constant of another module"),
        pytest.param({"constants": ("LIMIT = 100", "LIMIT = 101")}, id="attribute of a module"),
        pytest.param({"constants": ("A = 3", "A = 5")}, id="attribute of a class"),
        pytest.param({"signature": "int64(int32)"}, id="signature"),
    ],
)
def test_a_key_covers_all_that_a_function_is_compiled_from(key_of: Callable[..., str], change: Any) -> None:
    assert key_of(**change) != key_of() == key_of()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"callee": ("Documentation.", "Other documentation.")}, id="docstring"),
        pytest.param({"deep": ("def step", "# A comment, which moves the lines.\n\n\ndef step")}, id="comment"),
        pytest.param({"constants": ("B = 4", "B = 5")}, id="constant that it does not use"),
        pytest.param({"deep": ("def step", "def other(value):\n    return value\n\n\ndef step")}, id="other function"),
    ],
)
def test_a_key_stays_where_the_machine_code_stays(key_of: Callable[..., str], change: Any) -> None:
    assert key_of(**change) == key_of()


def test_a_key_covers_options_of_callees_closures_and_intrinsics() -> None:
    def keys(inner: Callable[..., Any]) -> str:
        @native.compiled()
        def callee(value: int) -> int:
            return int(inner(value))

        def function(value: int) -> int:
            return callee(value)

        return code_cache.set_key(function)

    assert keys(native.load_u8) == keys(native.load_u8)
    # Two intrinsics of one source that differ in a closure; an intrinsic of other code.
    assert len({keys(one) for one in (native.load_u8, native.load_u32, native.load, native.bit_length)}) == 4

    def constant(number: int | None) -> str:
        def function() -> int | None:
            return number

        return code_cache.set_key(function)

    assert len({constant(one) for one in (0, 1, None, True)}) == 4

    def function(value: int) -> int:
        return inner(value)

    def inner(value: int) -> int:
        return value

    plain = code_cache.set_key(function)
    code_cache.set_options(inner, "njit {'fastmath': True}")
    assert code_cache.set_key(function) != plain


def test_none_and_an_empty_text_have_different_keys() -> None:
    def nothing() -> object:
        return None

    def text() -> object:
        return ""

    assert code_cache.set_key(nothing) != code_cache.set_key(text)


def test_functions_that_call_each_other_have_a_key() -> None:
    def first(value: int) -> int:
        return second(value - 1) if value else 0

    def second(value: int) -> int:
        return first(value - 1) if value else 1

    assert code_cache.set_key(first) == code_cache.set_key(first) != code_cache.set_key(second)


def test_a_value_that_a_key_cannot_cover_is_refused() -> None:
    table = {1: 2}

    def function(value: int) -> int:
        return table[value]

    with pytest.raises(TypeError, match=re.escape("{1: 2}")):
        code_cache.set_key(function)


def test_all_compiled_code_has_a_key() -> None:
    # Who compiles without native compiles without a key.
    root = Path(stallprobes.__path__[0])
    imports = re.compile(r"^\s*(?:import|from) (?:numba|llvmlite)\b", re.MULTILINE)
    users = {path.name for path in root.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    assert users == {"code_cache.py", "native.py"}
    source = Path(native.__file__).read_text(encoding="utf-8")
    assert len(re.findall(r"cache=True", source)) == 1


def decorated(folder: Path, name: str = "lonely") -> Any:
    """A function without callees, from a source file in ``folder``; it is not compiled."""
    path = folder / "solo.py"
    path.write_text(f"def {name}(value):\n    return value + 1\n")
    module = types.ModuleType("solo")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return getattr(module, name)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.nb*"))


def test_a_package_folder_that_cannot_be_written_has_its_cache_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    # Not even root can create a folder here.
    (tmp_path / "__pycache__").write_text("")
    first = native.compiled("int64(int64)")(decorated(tmp_path))
    assert first(1) == 2
    assert len(files(tmp_path / "home" / "numba")) == 2
    second: Any = native.compiled("int64(int64)")(decorated(tmp_path))
    assert second(1) == 2
    assert sum(second.stats.cache_hits.values()) == 1


def test_without_a_folder_that_can_be_written_it_compiles_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "__pycache__"))
    (tmp_path / "__pycache__").write_text("")
    assert native.compiled("int64(int64)")(decorated(tmp_path))(1) == 2
    assert files(tmp_path) == []


def test_on_a_full_disk_it_compiles_and_works(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert native.compiled("int64(int64)")(decorated(tmp_path))(1) == 2
    assert files(tmp_path) == []


def test_entries_of_former_code_are_removed(tmp_path: Path, cache: Path) -> None:
    function = decorated(tmp_path)
    key = code_cache.set_key(function)
    assert code_cache.CodeLocator.from_function(function, str(tmp_path / "solo.py")) is not None
    (folder,) = cache.iterdir()
    python = f"py{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"
    other = "k" + "0" * (len(key) - 1)
    (tmp_path / "second.py").write_text("def kept(value):\n    return value\n")
    kept = [
        f"solo.lonely-{key}.{python}.nbi",
        f"solo.lonely-{key}.{python}.1.nbc",
        # Of a function that may be called later, of another Python, and what is not numba's.
        f"second.kept-{other}.{python}.nbi",
        f"second.kept-{other}.{python}.12.nbc",
        f"solo.lonely-{other}.py39.nbi",
        "solo.pyc",
    ]
    former = [
        f"solo.lonely-{other}.{python}.nbi",
        f"solo.lonely-{other}.{python}.2.nbc",
        # numba's own names, with the number of a line.
        f"solo.lonely-12.{python}.nbi",
        f"second.kept-3.{python}.1.nbc",
        # Of a function and of a module that are gone.
        f"solo.gone-{other}.{python}.nbi",
        f"third.any-{other}.{python}.nbi",
    ]
    for name in kept + former:
        (folder / name).write_text("")
    code_cache.remove_former(function)
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept)


def test_functions_without_a_key_are_cached_as_numba_does(tmp_path: Path, cache: Path) -> None:
    assert code_cache.CodeLocator.from_function(decorated(tmp_path), str(tmp_path / "solo.py")) is None
