"""``stallscope`` interrupted at a chosen moment: python interrupted_command.py MOMENT COUNT [argument of stallscope]...

MOMENT is an audit event of the interpreter with its first argument, such as ``import:click`` (for ``exec`` with the
name of the file), or ``exit``, when the exit functions run. There the process sends itself a SIGINT, and another at
each event that follows, COUNT in all.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

EXIT = "exit"


class Interrupter:
    """Sends ``count`` signals from ``moment`` on."""

    def __init__(self, moment: str, count: int) -> None:
        self._moment = moment
        self._count = count
        self._reached = False

    def on_event(self, event: str, arguments: tuple[object, ...]) -> None:
        """The audit hook."""
        if not self._reached and event == "import" and arguments[0] == "stallscope.cli.main":
            # Exit functions run in reverse order: before those that ``stallscope`` registers from here on has run.
            atexit.register(self._begin, EXIT)
        first = arguments[0] if arguments else ""
        if event == "exec":
            first = getattr(first, "co_filename", "")
        self._begin(f"{event}:{first}")

    def _begin(self, name: str) -> None:
        self._reached |= name == self._moment
        if self._reached and self._count > 0:
            self._count -= 1
            os.kill(os.getpid(), signal.SIGINT)


def main(moment: str, count: int, arguments: list[str]) -> NoReturn:
    """Run the command line. Ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["stallscope", *arguments]
    from stallscope.cli import entry

    sys.addaudithook(Interrupter(moment, count).on_event)
    entry.main()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
