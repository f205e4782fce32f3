"""Answers of functions that may hang in the driver or the kernel: a call into either cannot be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")


def in_thread(ask: Callable[[], Answer], name: str) -> Future[Answer]:
    """The answer of ``ask`` in a thread called ``name``, which does not hold up the end of the program."""
    answer: Future[Answer] = Future()

    def run() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer
