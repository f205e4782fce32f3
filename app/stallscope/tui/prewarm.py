"""What is begun before the screen's own modules are loaded, since it takes as long and needs none of them.

An engine's process loads its backend, and the driver is asked which GPUs there are; both happen in other processes.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from stallprobes.engine.process import SpareEngine

if TYPE_CHECKING:
    from stallprobes.machine.gpus import Survey

Answer = TypeVar("Answer")

# What a driver shows of itself: on a usual machine, and under WSL.
_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


class Begun(Generic[Answer]):
    """A question whose answer is being made. Called the first time it waits for that; after it, the question is asked
    anew."""

    def __init__(self, question: Callable[[], Answer]) -> None:
        self._question = question
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._waiting = True
        threading.Thread(target=self._ask, name="ahead", daemon=True).start()

    def __call__(self) -> Answer:
        """The answer. Raises what the question raised."""
        if not self._waiting:
            return self._question()
        self._waiting = False
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self) -> None:
        try:
            self._answers.put(self._question())
        except BaseException as error:
            self._answers.put(error)


def engine(simulated: bool) -> SpareEngine | None:
    """An engine's process for the GPU, or a simulated one where there is none; None where no process can be made."""
    try:
        return SpareEngine("sim" if simulated or not any(map(os.path.exists, _SIGNS)) else "cuda")
    except OSError:
        return None


def survey() -> Begun[Survey]:
    """The GPUs of this machine."""

    def ask() -> Survey:
        from stallprobes.machine import gpus

        return gpus.survey()

    return Begun(ask)
