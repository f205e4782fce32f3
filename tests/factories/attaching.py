"""Programs beside the stand-ins that are attached while they run, and who attaches to them."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from factories.stand_in import OPTIONS, StandIn
from factories.watched_folders import FolderContents, read_folder
from stallprobes.native.sources import ATTACHER, INJECTED
from stallprobes.watch.attaching import access, helper
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.environment import WatchOptions

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
        first = self.line()
        if first != "ready":
            self._process.kill()
            rest, errors = self._process.communicate()
            code = self._process.returncode
            raise AssertionError(
                f"{program} {' '.join(words)} wrote {first!r}, {rest!r} and {errors!r}: exit code {code}"
            )

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

    def wait(self) -> int:
        """Its exit code, once it has ended by itself. Raises TimeoutExpired if it does not."""
        return self._process.wait(timeout=120)

    def end(self) -> tuple[int, str, str]:
        """End its input; exit code, further output and errors."""
        output, errors = self._process.communicate()
        return self._process.returncode, output, errors


def use_built(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the attacher and the library of the stand-ins used."""
    use_programs(monkeypatch, stand_in.folder / ATTACHER, stand_in.folder / INJECTED)


def use_programs(monkeypatch: pytest.MonkeyPatch, attacher: Path, library: Path) -> None:
    """Have an attacher and a library used."""
    for module in (access, helper):
        monkeypatch.setattr(module, "native_programs", lambda: (attacher, library))


def run_attacher(
    stand_in: StandIn, pid: int, library: str = INJECTED, settings: Mapping[str, str] = _NOTHING
) -> subprocess.CompletedProcess[str]:
    """The attacher, once it has loaded a library into a process."""
    with start_attacher(stand_in, pid, library, settings) as started:
        output, errors = started.communicate()
    return subprocess.CompletedProcess(started.args, started.returncode, output, errors)


def start_attacher(
    stand_in: StandIn, pid: int, library: str = INJECTED, settings: Mapping[str, str] = _NOTHING
) -> subprocess.Popen[str]:
    """The attacher that loads a library into a process."""
    target = Target(pid)
    with ProcessImage.of(pid) as image, open(stand_in.folder / library, "rb") as file:
        addresses = [f"{address:x}" for address in find_functions(target, image)]
        kept = (file.fileno(), image.memory, image.descriptor)
        return subprocess.Popen(
            [str(stand_in.folder / ATTACHER), str(pid), *addresses, *map(str, kept),
             *map(str, target.sleeping_threads())],
            pass_fds=kept, env=dict(settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip


class Attached:
    """A program that is attached by this process, with its recordings."""

    _opened: ClassVar[list[AttachedProcesses]] = []

    def __init__(self, pid: int, options: WatchOptions = OPTIONS) -> None:
        """Attach. Raises WatchError."""
        self.processes = AttachedProcesses()
        self._opened.append(self.processes)
        self.attachment = self.processes.attach(pid, options)

    def detach(self) -> None:
        """Detach. Raises WatchError where the program does not answer."""
        self.attachment.detach()

    def contents(self) -> FolderContents:
        """What was recorded."""
        return read_folder(self.processes)

    @classmethod
    def close_all(cls) -> None:
        """Close what all have opened."""
        while cls._opened:
            cls._opened.pop().close()


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
