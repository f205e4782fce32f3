"""Helper: a process that has become the user of a target, and does for stallscope what needs the target's names.

stallscope, which may be root, resolves no name that the target controls: it would act with its own rights on whatever
the name leads to. The helper has the target's rights and the capability to trace, nothing else. Its answers are checked
again, since the target's user may stop, end or limit it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from stallprobes.errors import WatchError
from stallprobes.foreign_text import printable
from stallprobes.watch.attaching import messages
from stallprobes.watch.attaching.access import OwnAccess, native_programs
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.loading import ATTACHER_S, Loaded
from stallprobes.watch.attaching.rights import Identity
from stallprobes.watch.attaching.target import Target, user_name
from stallprobes.watch.reading.proc_files import content
from stallprobes.watch.reading.py_spy import PySpyRun, find_py_spy
from stallprobes.watch.reading.source import NO_PY_SPY

# Longest wait (s) for an answer of a helper process, which has the rights of the attached process's user. Usual answers
# take milliseconds.
ANSWER_S = 2.0
# Longest wait (s) for the start of the helper process, which imports its Python modules from disk.
START_S = 20.0
# Longest wait (s) until the helper has loaded a library into a process: the attacher's own limit, and the time for the
# helper's answer.
LOADING_S = ATTACHER_S + ANSWER_S
# _LOOK_S: period (s) at which stallscope checks whether a signal or a debugger has stopped the helper process.
# _STOPPED_S: longest time (s) for which the helper process may be stopped. After a longer time, the helper process is
# killed and counts as lost.
_LOOK_S, _STOPPED_S = 0.05, 1.0
# Largest number of characters that stallscope shows of the helper process's reason for a refusal.
_MAX_SENTENCE = 2000
# States of a stopped process in /proc: by a signal, and by a debugger.
_STOPPED = ("T", "t")
# Largest number that is accepted in an answer of the helper process: no time, thread or address is as large.
_MAX_NUMBER = 1 << 62


class TargetHelper:
    """Access to the processes of one user by a helper. Any thread may use it."""

    def __init__(self, identity: Identity) -> None:
        """Start the helper. Raises WatchError where it cannot become that user, or does not answer."""
        self._who = user_name(identity.user)
        self._lock = threading.Lock()
        self.problem = ""
        py_spy = find_py_spy()
        self._has_spy = py_spy is not None
        programs = [str(path) for path in native_programs()]
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            settings = {
                "connection": its.fileno(),
                "parent": os.getpid(),
                "identity": identity,
                "programs": [*programs, None if py_spy is None else str(py_spy)],
            }
            try:
                self._process = _starter(os.getpid()).submit(_started, its.fileno(), settings).result()
            except OSError as error:
                mine.close()
                raise WatchError(
                    f"the helper process for user {self._who} cannot be started ({error.strerror}): try again."
                ) from error
        self._connection = mine
        try:
            self._receive(START_S)
        except BaseException:
            self.close()
            raise

    def load(self, target: Target, image: ProcessImage, threads: Sequence[int]) -> Loaded:
        """Let one of ``threads`` load the library. Raises WatchError."""
        descriptors = [descriptor for descriptor in (image.memory, image.descriptor) if descriptor >= 0]
        answer = self._ask("load", target, descriptors, LOADING_S, threads=list(threads)[:256])
        region = answer.get("region")
        if not isinstance(region, list) or len(region) != 2:
            raise self._lost("gave a wrong answer")
        numbers = [self._number(value) for value in (answer.get("stopped_ns"), answer.get("thread"), *region)]
        return Loaded(numbers[0], numbers[1], (numbers[2], numbers[3]))

    def in_driver(self, target: Target, image: ProcessImage, pointers: Mapping[int, int]) -> list[int]:
        """The threads that are inside the driver. Raises WatchError where the helper is lost."""
        answer = self._ask("in_driver", target, [image.memory], ANSWER_S, pointers=list(pointers.items()))
        threads = answer.get("threads")
        return [thread for thread in threads if thread in pointers] if isinstance(threads, list) else []

    def environment(self, target: Target) -> Mapping[str, str]:
        """Variables of the environment that are of use; empty where they cannot be read, or the helper is lost."""
        with suppress(WatchError):
            variables = self._ask("environment", target).get("variables")
            if isinstance(variables, dict):
                return {name: value for name, value in variables.items() if isinstance(value, str)}
        return {}

    def open_module(self, target: Target, path: str) -> int | None:
        """A descriptor of a file of the program's code; None without it, or where the helper is lost."""
        with suppress(WatchError):
            opened: list[int] = []
            self._ask("module", target, path=path[:4096], results=opened)
            if len(opened) == 1 and stat.S_ISREG(os.fstat(opened[0]).st_mode):
                return opened[0]
            for descriptor in opened:
                os.close(descriptor)
        return None

    @property
    def no_spy(self) -> str:
        """A clause where py-spy is not installed."""
        return "" if self._has_spy else NO_PY_SPY

    def spy(self, target: Target) -> PySpyRun:
        """A run of py-spy in the helper."""

        def start(output: int, errors: int) -> Callable[[], int | None]:
            self._ask("spy", target, [output, errors])
            return partial(self._end_spy, target)

        return PySpyRun(start)

    def close(self) -> None:
        """End the helper."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _end_spy(self, target: Target) -> int | None:
        code = self._ask("end_spy", target).get("code")
        return code if isinstance(code, int) else None

    def _number(self, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
            raise self._lost("gave a wrong answer")
        return value

    def _ask(
        self,
        do: str,
        target: Target,
        descriptors: Sequence[int] = (),
        limit_s: float = ANSWER_S,
        results: list[int] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """The answer to a request; its descriptors go to ``results``. Raises WatchError."""
        with self._lock:
            if self.problem:
                raise WatchError(self.problem)
            try:
                messages.send(self._connection, {"do": do, "pid": target.pid, **more}, descriptors)
            except OSError as error:
                raise self._lost("was ended") from error
            answer, received = self._receive(limit_s)
        if results is None:
            for descriptor in received:
                os.close(descriptor)
        else:
            results += received
        return answer

    def _receive(self, limit_s: float) -> tuple[dict[str, Any], list[int]]:
        due_s, stopped_s = time.monotonic() + limit_s, 0.0
        while not select.select([self._connection], [], [], _LOOK_S)[0]:
            stopped_s = stopped_s + _LOOK_S if self._is_stopped() else 0.0
            if stopped_s > _STOPPED_S:
                raise self._lost("was stopped")
            if time.monotonic() > due_s:
                raise self._lost(f"did not answer for {limit_s:g} s")
        try:
            answer, descriptors = messages.receive(self._connection)
        except (EOFError, OSError) as error:
            raise self._lost("was ended") from error
        except ValueError as error:
            raise self._lost("gave a wrong answer") from error
        refused, failed = (answer.get(name) for name in ("refused", "failed"))
        if isinstance(refused, str):
            raise WatchError(printable(refused)[:_MAX_SENTENCE])
        if isinstance(failed, str):
            raise WatchError(
                f"the helper process for user {self._who} cannot do it ({printable(failed)[:200]}): run stallscope as"
                " that user, or with sudo."
            )
        return answer, descriptors

    def _is_stopped(self) -> bool:
        """True if the helper, or what it runs, is stopped."""
        pid = self._process.pid
        children = content(Path(f"/proc/{pid}/task/{pid}/children")).split()
        return any(Target(process).state in _STOPPED for process in (pid, *map(int, children)))

    def _lost(self, how: str) -> WatchError:
        self.problem = (
            f"the helper process for user {self._who} {how}: what needs it is missing from here on; watch the program"
            " again, or as that user."
        )
        self._process.kill()
        return WatchError(self.problem)


# What is done with a process. All of it raises WatchError where the way to the process is lost.
TargetAccess = OwnAccess | TargetHelper


@cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """A thread of the process ``pid``, this one, that starts the helpers.

    It stays: the kernel ends a helper with the thread that started it. It takes no signal of this program.
    """
    executor = ThreadPoolExecutor(1, "helper starter")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        executor.submit(int).result()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return executor


def _started(connection: int, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """The process, which inherits the connection and nothing else of this one."""
    environment = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
    }
    return subprocess.Popen(
        [sys.executable, "-s", "-P", "-m", "stallprobes.watch.attaching.helper_process", json.dumps(settings)],
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=environment,
    )
