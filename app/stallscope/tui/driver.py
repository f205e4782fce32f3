"""Terminal driver: reads input whatever it is, and suspends the process group and resumes the screen."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from stallscope.tui.input_decoder import InputDecoder

_READ_BYTES = 4096
_POLL_S = 0.1
# The kernel may deliver a signal to another thread, a moment after the call that sent it.
_STOP_S = 0.05
_SIGNALS_S = 0.1


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux with its own decoder of input and its own suspension.

    The terminal is never asked for its size, which the kernel has.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._suspended = False
        # The base class stops only this process, within a signal handler.
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self._handle_stop_signal()

    @property
    def can_suspend(self) -> bool:
        """Whether a shell started the program: the leader of a session has none that could resume it."""
        return os.getsid(0) != os.getpid()

    async def suspend_process(self) -> None:
        """Restore the terminal and stop the process group; returns when it runs in the foreground again.

        Between a continuation in the background and the next stop the event loop runs, so that SIGTERM ends the
        program.
        """
        self.suspend_application_mode()
        self._suspended = True
        while True:
            self._loop.remove_signal_handler(signal.SIGTSTP)
            try:
                # As the terminal does: a program that started this one stops too.
                os.kill(0, signal.SIGTSTP)
                time.sleep(_STOP_S)
            finally:
                self._handle_stop_signal()
            await asyncio.sleep(_SIGNALS_S)
            if self._in_foreground():
                break
        self._suspended = False
        self.resume_application_mode()

    def write(self, data: str) -> None:
        """Write to the terminal, except while the process is suspended."""
        if not self._suspended:
            super().write(data)

    def disable_input(self) -> None:
        """Stop reading; a suspended driver does not read."""
        if not self._suspended:
            super().disable_input()

    def stop_application_mode(self) -> None:
        """Restore the terminal; a suspended driver has done so."""
        if not self._suspended:
            super().stop_application_mode()

    def close(self) -> None:
        """End the thread that writes; a suspended driver has none."""
        if not self._suspended:
            super().close()

    def run_input_thread(self) -> None:
        """Read and decode input until the driver stops. The end of the input counts as the end of the terminal."""
        decoder = InputDecoder()
        while not self.exit_event.is_set():
            data = b""
            if select.select([self.fileno], [], [], _POLL_S)[0]:
                try:
                    data = os.read(self.fileno, _READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    os.kill(os.getpid(), signal.SIGHUP)
                    return
            for message in (*decoder.feed(data), *decoder.tick()):
                self.process_message(message)

    def _query_in_band_window_resize(self) -> None:
        pass

    def _handle_stop_signal(self) -> None:
        self._loop.add_signal_handler(signal.SIGTSTP, self._app.call_later, self._app.action_suspend_process)

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:
            # No terminal: SIGHUP ends the program.
            return True
