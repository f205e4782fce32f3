"""``subprocess.Popen`` of commands and engines that start by a fork of a server."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import AnyStr

import pytest

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
            self.pid = server(self.preload).start(
                given["args"][1:],
                descriptors_of(given),
                os.environ if given["env"] is None else given["env"],
                cwd=given["cwd"],
                new_session=given["start_new_session"],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]


class ForkedEngine(ForkedProcess[AnyStr]):
    """The process of an engine."""

    preload = Preload.ENGINE


@contextmanager
def engines() -> Iterator[None]:
    """Within it, engines of this process start by a fork."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedEngine}))
        yield


@contextmanager
def none() -> Iterator[None]:
    """Within it, engines have interpreters of their own again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", subprocess)
        yield
