"""The backend by which pip builds the package (PEP 517): setuptools', with the native libraries.

A wheel has the libraries of one machine, whatever its Python; an editable installation has them in the source tree. The
setting ``target`` (``pip wheel . --config-settings target=aarch64``) builds a wheel for a machine with zig's compiler,
for every system from glibc 2.17 on.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stallprobes.native.building.compilers import MACHINES, ZIG, BuildError, machine, of_system
from stallprobes.native.building.libraries import build
from stallprobes.native.sources import LIBRARIES, NATIVE
from stallprobes.version import COMMIT_FILE, commit_of

Settings = Mapping[str, str | list[str]] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What the build needs besides setuptools: zig's compiler for another machine, and where no compiler works."""
    required: list[str] = list(_setuptools().get_requires_for_build_wheel(config_settings))
    return [*required, ZIG] if _target(config_settings) or not _system_compiles() else required


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """What an editable installation needs; as for a wheel."""
    required: list[str] = list(_setuptools().get_requires_for_build_editable(config_settings))
    return required if _system_compiles() else [*required, ZIG]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What an archive of the sources needs."""
    return list(_setuptools().get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of the wheel; returns the name of their folder."""
    return str(_setuptools().prepare_metadata_for_build_wheel(metadata_directory, None))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of an editable installation; returns the name of their folder."""
    return str(_setuptools().prepare_metadata_for_build_editable(metadata_directory, None))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build the archive of the sources; returns its name."""
    return str(_setuptools().build_sdist(sdist_directory, None))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, ``py3-none-linux_…`` or, with a target, ``py3-none-manylinux_2_17_…``; returns its name."""
    target = _target(config_settings)
    # Modules that no longer exist would be taken from an earlier build.
    shutil.rmtree("build", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="stallscope-wheel-") as temporary:
        name = str(_setuptools().build_wheel(temporary, None, metadata_directory))
        _wheel("unpack", "--dest", temporary, str(Path(temporary, name)))
        Path(temporary, name).unlink()
        (unpacked,) = Path(temporary).iterdir()
        _compile(unpacked / NATIVE.relative_to(NATIVE.parents[1]) / LIBRARIES.name, target)
        if commit := commit_of(Path.cwd()):
            (unpacked / NATIVE.parent.name / COMMIT_FILE).write_text(f"{commit}\n", encoding="ascii")
        for words in unpacked.glob("*.dist-info/WHEEL"):
            words.write_text(words.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
        _wheel("pack", "--dest-dir", temporary, str(unpacked))
        platform = f"manylinux_2_17_{target}" if target else f"linux_{machine()}"
        _wheel("tags", "--remove", "--platform-tag", platform, str(Path(temporary, name)))
        (built,) = Path(temporary).glob("*.whl")
        shutil.copy(built, wheel_directory)
        return built.name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the libraries in the source tree, and the wheel of an editable installation; returns its name."""
    if _target(config_settings):
        raise SystemExit("an editable installation has no target: it is for this machine")
    _compile(LIBRARIES, None)
    return str(_setuptools().build_editable(wheel_directory, None, metadata_directory))


def _setuptools() -> Any:
    """Setuptools' backend, which only pip's build environment has for certain."""
    return importlib.import_module("setuptools.build_meta")


def _system_compiles() -> bool:
    """True if a compiler of the machine builds both libraries: that it is there says little."""
    with tempfile.TemporaryDirectory(prefix="stallscope-try-") as temporary:
        try:
            build(Path(temporary), compilers=of_system())
        except BuildError:
            return False
    return True


def _compile(folder: Path, target: str | None) -> None:
    try:
        build(folder, target)
    except BuildError as error:
        raise SystemExit(f"stallscope's native libraries cannot be built: {error}.") from error


def _target(settings: Settings) -> str | None:
    target = (settings or {}).get("target")
    if target is None:
        return None
    if target not in MACHINES:
        raise SystemExit(f"the target of a wheel is {' or '.join(MACHINES)}, not {target}.")
    return str(target)


def _wheel(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "wheel", *arguments], check=True, stdout=subprocess.DEVNULL)
