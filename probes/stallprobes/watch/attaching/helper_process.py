"""Process of the helper, which has become the user of a target and does for stallscope what needs the target's names.

It imports and opens all that it needs first: afterwards what is the caller's may be closed to it. It has no terminal
and no descriptor of the caller's but the connection, and ends with its parent.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from stallprobes.errors import WatchError
from stallprobes.watch.attaching import messages
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.in_flight import threads_in_driver
from stallprobes.watch.attaching.loading import Programs, load_library
from stallprobes.watch.attaching.module_files import open_module
from stallprobes.watch.attaching.rights import Identity, become
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.reading.process_rank import VARIABLES, environment_of
from stallprobes.watch.reading.py_spy import end_spy, spy_command

# What a request gives: the answer, and descriptors that go with it and are closed here.
_Answer = tuple[dict[str, Any], Sequence[int]]


class _Helper:
    """What the helper does for the requests of stallscope."""

    def __init__(self, programs: Programs, py_spy: int) -> None:
        self._programs, self._py_spy = programs, py_spy
        self._spy: subprocess.Popen[bytes] | None = None
        self.requests: dict[str, Callable[[dict[str, Any], list[int]], _Answer]] = {
            "load": self.load,
            "in_driver": self.in_driver,
            "environment": self.environment,
            "module": self.module,
            "spy": self.spy,
            "end_spy": self.end_spy,
        }

    def load(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """Let a thread load the library; ``descriptors`` are those of an image."""
        image = ProcessImage(descriptors[0], descriptors[1] if len(descriptors) > 1 else -1)
        loaded = load_library(Target(request["pid"]), image, self._programs, request["threads"])
        return {"stopped_ns": loaded.stopped_ns, "thread": loaded.thread, "region": loaded.region}, ()

    def in_driver(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """Search stacks for addresses of libcuda."""
        image = ProcessImage(descriptors[0], -1)
        pointers = dict(request["pointers"])
        return {"threads": list(threads_in_driver(Target(request["pid"]), image, pointers))}, ()

    def environment(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """Read those variables of the environment that are of use."""
        target = Target(request["pid"])
        env = environment_of(target.pid, target.proc)
        return {"variables": {name: env[name][: messages.MAX_BYTES >> 6] for name in VARIABLES if name in env}}, ()

    def module(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """Open a file of the program's code."""
        return {}, (open_module(request["pid"], request["path"]),)

    def spy(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """Begin py-spy, which writes to ``descriptors``."""
        self.end_spy(request, [])
        self._spy = subprocess.Popen(
            spy_command("py-spy", request["pid"]), executable=f"/proc/self/fd/{self._py_spy}", pass_fds=[self._py_spy],
            stdin=subprocess.DEVNULL, stdout=descriptors[0], stderr=descriptors[1],
        )  # fmt: skip
        return {}, ()

    def end_spy(self, request: dict[str, Any], descriptors: list[int]) -> _Answer:
        """End py-spy."""
        code = None if self._spy is None else end_spy(self._spy)
        self._spy = None
        return {"code": code}, ()


def serve(connection: socket.socket, helper: _Helper) -> None:
    """Answer requests until the connection ends."""
    while True:
        try:
            request, descriptors = messages.receive(connection)
        except (EOFError, OSError, ValueError):
            return
        try:
            answer, results = helper.requests[request["do"]](request, descriptors)
        except WatchError as error:
            answer, results = {"refused": str(error)}, ()
        except OSError as error:
            answer, results = {"failed": error.strerror or str(error)}, ()
        except Exception as error:
            answer, results = {"failed": f"{type(error).__name__} {error}"}, ()
        finally:
            _close(descriptors)
        with suppress(OSError):
            messages.send(connection, answer, results)
        _close(results)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    """Become the user of the target, and serve. The settings are the first argument, as JSON."""
    settings = json.loads(sys.argv[1])
    connection = socket.socket(fileno=settings["connection"])
    opened = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else -1 for path in settings["programs"]]
    helper = _Helper(Programs(opened[0], opened[1]), opened[2])
    user, group, groups = settings["identity"]
    try:
        become(Identity(user, group, tuple(groups)), settings["parent"])
    except OSError as error:
        messages.send(connection, {"failed": error.strerror or str(error)})
        return
    messages.send(connection, {"ready": True})
    serve(connection, helper)


if __name__ == "__main__":
    main()
