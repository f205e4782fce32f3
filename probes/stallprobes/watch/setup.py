"""What a program is started with so that it is watched: its environment, and the folder of its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.files.ending_signals import unwound_by_signals
from stallprobes.foreign_text import printable
from stallprobes.native.layouts.watch_file import FOLDER_VARIABLE
from stallprobes.watch.environment import INJECTION_VARIABLE, WatchOptions, libcupti_of, library, variables
from stallprobes.watch.reading.folder import create_folder
from stallprobes.watch.reading.folder_lock import FolderLock, places, remove_abandoned


@dataclass(frozen=True)
class WatchSetup:
    """What a program is started with. ``folder`` is None where it cannot be watched, with the reason in ``problem``.

    While ``lock`` is held, no other stallscope removes the folder.
    """

    environment: Mapping[str, str]
    options: WatchOptions
    folder: Path | None
    problem: str = ""
    lock: FolderLock | None = None

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock is not None:
            self.lock.release()


def given_environment() -> dict[str, str]:
    """The environment that this process was started with.

    In the C locale, Python itself adds LC_CTYPE (PEP 538), with which other programs would behave differently.
    """
    present = dict(os.environ)
    with suppress(OSError):
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
            present.pop("LC_CTYPE", None)
    return present


def prepare(options: WatchOptions, present: Mapping[str, str]) -> WatchSetup:
    """The setup of a program. Raises WatchError where another tool is injected, or it is watched already."""
    already = present.get(FOLDER_VARIABLE)
    if already and present.get(INJECTION_VARIABLE) and os.path.isdir(already):
        # The watch that has it would find no call and say so.
        raise WatchError(
            f"the program is watched already, as {FOLDER_VARIABLE} says ({printable(already)}): start it without watch,"
            f" or unset {FOLDER_VARIABLE}."
        )
    # One that was killed could not.
    remove_abandoned(places())
    with unwound_by_signals():
        try:
            built = library()
            folder = create_folder()
        except WatchError as error:
            # The program was asked for; without its report it is still of use.
            return WatchSetup(present, options, None, str(error).rstrip("."))
        try:
            added = variables(built, folder, options, present, libcupti_of(present))
            return WatchSetup({**present, **added}, options, folder, lock=FolderLock.create(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
