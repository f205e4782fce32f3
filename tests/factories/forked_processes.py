"""``subprocess.Popen`` of commands and engines that start by a fork of a server."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import AnyStr

from factories.fork_server import Preload, descriptors_of, server
from stallprobes.engine import process


class ForkedProcess(subprocess.Popen[AnyStr]):
    """``subprocess.Popen`` of a Python program that starts by a fork of a server."""

    preload = Preload.COMMAND

    def _execute_child(self, *arguments: object) -> None:
        # What Popen calls to start the program: the names of its parameters are the same in all supported versions.
        given = inspect.signature(super()._execute_child).bind(*arguments).arguments  # type: ignore[misc]
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        try:
            env = os.environ if given["env"] is None else given["env"]
            # A group of its own in the session of the server would be another session's.
            new_session = given["start_new_session"] or given["process_group"] == 0
            self.pid = self._forked(given["args"][1:], descriptors_of(given), env, given["cwd"], new_session)
            self._child_created = True
        finally:
            self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]

    def _forked(
        self,
        arguments: Sequence[str],
        descriptors: Mapping[int, int],
        env: Mapping[str, str],
        cwd: str | None,
        new_session: bool,
    ) -> int:
        return server(self.preload).start(
            arguments, descriptors, env, cwd=cwd, new_session=new_session, engine=self._starts_engine(arguments)
        )

    def _starts_engine(self, arguments: Sequence[str]) -> bool:
        """Whether the program probably starts an engine, which is a forked child too."""
        return "--sim" in arguments


class ForkedEngine(ForkedProcess[AnyStr]):
    """The process of an engine."""

    preload = Preload.ENGINE

    def _starts_engine(self, arguments: Sequence[str]) -> bool:
        return False


class ForkedEngineWithSecond(ForkedEngine[AnyStr]):
    """The process of an engine that starts a second one, or of a program that starts an engine."""

    def _starts_engine(self, arguments: Sequence[str]) -> bool:
        return True


@contextmanager
def engines(second: bool = False) -> Iterator[None]:
    """Within it, engines of this process start by a fork; their second processes too with ``second``."""
    with _started_by(ForkedEngineWithSecond if second else ForkedEngine):
        yield


@contextmanager
def none() -> Iterator[None]:
    """Within it, engines have interpreters of their own again."""
    with _started_by(subprocess.Popen):
        yield


@contextmanager
def _started_by(kind: type[subprocess.Popen[bytes]]) -> Iterator[None]:
    unchanged = process.subprocess  # type: ignore[attr-defined]
    process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": kind})  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        process.subprocess = unchanged  # type: ignore[attr-defined]
