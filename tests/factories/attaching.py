"""Programs beside the stand-ins that are attached while they run, and who attaches to them."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from factories.stand_in import StandIn
from stallprobes.native.sources import ATTACHER, INJECTED
from stallprobes.watch.attaching import attachment
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.target import Target

NOBODY = 65534
# Users of a program, where the tests may choose: root, and one without any rights.
USERS = (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)
CALLS = ("poll", "ppoll", "epoll", "select", "accept", "sleep")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class RunningProgram:
    """A host program that runs: it answers lines, and ends with its input. A context manager."""

    def __init__(
        self,
        stand_in: StandIn,
        *words: str,
        program: str = "attached",
        user: int | None = None,
        settings: Mapping[str, str] = _NOTHING,
    ) -> None:
        path = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(stand_in.folder)}
        self._process = subprocess.Popen(
            [str(stand_in.folder / program), *words],
            env={**path, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        assert self.line() == "ready"

    def __enter__(self) -> RunningProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def line(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self) -> str:
        """What it answers to a line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.line()

    def launches(self) -> int:
        """How many launches it has made; AssertionError if anything of the thread that sleeps is not as before."""
        answer = self.ask()
        state, _, count = answer.partition(", ")
        assert (state, count.partition(" ")[2]) == ("same", "launches"), answer
        return int(count.split()[0])

    def end(self) -> tuple[int, str, str]:
        """End its input; exit code, further output and errors."""
        output, errors = self._process.communicate()
        return self._process.returncode, output, errors


def use_built(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the attacher and the library of the stand-ins used."""
    monkeypatch.setattr(attachment, "attacher", lambda: stand_in.folder / ATTACHER)
    monkeypatch.setattr(attachment, "injected_library", lambda: stand_in.folder / INJECTED)


def attacher_command(stand_in: StandIn, pid: int, library: str = INJECTED) -> list[str]:
    """The command by which a library is loaded into a process."""
    target = Target(pid)
    found = find_functions(target)
    addresses = [f"{address:x}" for address in (found.syscall, found.sigreturn, *found.functions)]
    threads = map(str, target.sleeping_threads())
    return [str(stand_in.folder / ATTACHER), str(pid), *addresses, str(stand_in.folder / library), *threads]


def as_user(user: int, function: Callable[[], Any]) -> Any:
    """What ``function`` returns, or the text of what it raises, in a forked process of ``user``."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.close(reading)
            if user != os.geteuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            try:
                result = function()
            except Exception as error:
                result = str(error)
            with os.fdopen(writing, "wb") as file:
                pickle.dump(result, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


def open_to_all(folder: Path) -> None:
    """Let every user into a folder and those above it."""
    for each in (folder, *folder.parents):
        with suppress(OSError):
            if each != Path("/") and each.stat().st_uid == os.geteuid():
                each.chmod(each.stat().st_mode | 0o055)
