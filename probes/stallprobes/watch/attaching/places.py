"""Where an attached process writes: a private folder that both it and stallscope can use.

In a container or a chroot, that is a folder of the process's own file system, reached from outside by /proc/PID/root.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.reading.folder import PREFIX, create_folder

_PARENTS = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))


@dataclass(frozen=True)
class SharedFolder:
    """A folder by its path here and by that in the process."""

    here: Path
    there: Path


def parents(target: Target) -> list[Path]:
    """The folders of the process in which a private one can be made, by their paths in it."""
    root = Path("/") if target.shares_files() else target.folder / "root"
    return [parent for parent in _PARENTS if os.access(_inside(root, parent), os.W_OK | os.X_OK)]


def folder_for(pid: int) -> Path:
    """A new private folder that the process ``pid`` can write to, owned by its user. Raises WatchError."""
    target = Target(pid)
    owner = target.owner()
    with _made(target) as made:
        if os.geteuid() != owner[0]:
            os.chown(made, *owner)
    return made


class _Made:
    """A folder that is removed again if it cannot be given to its user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self._folder.rmdir()
        if isinstance(error, OSError):
            raise WatchError(f"{self._folder} cannot be given to the process's user: {error.strerror}.") from error


def _made(target: Target) -> _Made:
    if target.shares_files():
        # The user's own temporary folder may be closed to the process's user.
        mine = os.geteuid() == target.owner()[0]
        return _Made(create_folder(None if mine else next(iter(parents(target)), None)))
    for parent in parents(target):
        try:
            # It stays reachable by the descriptor when the process ends, and /proc/PID/root with it.
            descriptor = os.open(_inside(target.folder / "root", parent), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return _Made(Path(tempfile.mkdtemp(prefix=PREFIX, dir=f"/proc/{os.getpid()}/fd/{descriptor}")))
        except OSError:
            continue
    raise WatchError(f"no private folder can be made where {target.title} can write: give it /dev/shm or /tmp.")


def shared_folder(target: Target, folder: Path) -> SharedFolder:
    """``folder`` as the process sees it. Raises WatchError if it does not see it."""
    if target.shares_files():
        return SharedFolder(folder, folder.resolve())
    for path in _views(target, folder):
        return SharedFolder(folder, path)
    raise WatchError(f"{folder} is not visible to {target.title}: use one that is made for it.")


def _views(target: Target, folder: Path) -> Iterator[Path]:
    for parent in _PARENTS:
        with suppress(OSError):
            if os.path.samefile(_inside(target.folder / "root", parent) / folder.name, folder):
                yield parent / folder.name


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
