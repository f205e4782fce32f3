"""Terminal driver: bounded input and output, suspension of the process group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import termios
import time
from typing import Any

from textual.app import App, ScreenStackError
from textual.drivers._writer_thread import MAX_QUEUED_WRITES
from textual.drivers.linux_driver import LinuxDriver
from textual.events import InputEvent
from textual.message import Message

from stallscope.tui.terminal_input import InputDecoder, InputQueue

# Largest number of bytes of terminal input that are read at a time.
_READ_BYTES = 4096
# Longest wait (s) for terminal input, after which the reading thread checks whether the app has ended.
_POLL_S = 0.1
# Pause (s) between two reads while input arrives faster than the screen can handle the input. Reason: other threads
# need the CPU.
_FLOOD_STEP_S = 0.005
# Notice after input was dropped.
FLOOD_NOTICE = "Input was dropped: it arrived faster than the screen can handle it."
# Smallest number of unhandled messages at which input events stay in the input queue. The messages of the app, the
# screen and the focused widget count. Reason: if input arrives too fast, only events in the input queue can be dropped.
_MOST_DELIVERED = 8
# Period (s) at which events go from the input queue to the app's message queue.
_DELIVERY_S = 0.002
# Largest number of writes that wait for a slow terminal; further writes are dropped. Reason: with MAX_QUEUED_WRITES
# waiting writes, Textual's writer would block the event loop.
_MOST_WRITES = MAX_QUEUED_WRITES - 4
# Control sequences that switch mouse, paste and focus reports off and line wrap on, and restore the terminal's screen
# and cursor.
_RESTORE = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
# Time (s) to sleep after SIGTSTP to the process group, before the handler of SIGTSTP is restored. Reason: the kernel
# may deliver the signal to another thread after the call has returned.
_STOP_S = 0.05
# Time (s) for which the event loop runs after SIGCONT. If the process is then still in the background, the process
# stops again. Reason: during this time, SIGTERM can end the process.
_SIGNALS_S = 0.1


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux with its own decoder of input and its own suspension.

    Input events wait in ``input`` and reach the app a few at a time, so that a flood of them can be dropped. Nothing is
    written to a terminal that does not read; ``output_lost`` is then True. The terminal is never asked for its size,
    which the kernel has.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.input = InputQueue()
        self.output_lost = False
        self._delivering = False
        self._suspended = False
        # The base class stops only this process, within a signal handler.
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self._handle_stop_signal()

    @property
    def can_suspend(self) -> bool:
        """True if a shell started the program: the leader of a session has none that could resume it."""
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
                # The whole group stops, as by the terminal: a program that started this one stops too.
                os.kill(0, signal.SIGTSTP)
                time.sleep(_STOP_S)
            finally:
                self._handle_stop_signal()
            await asyncio.sleep(_SIGNALS_S)
            if self._in_foreground():
                break
        self._suspended = False
        self.resume_application_mode()

    @property
    def output_waits(self) -> bool:
        """True if the terminal has not taken everything that was written."""
        return self._writer_thread is not None and self._writer_thread._queue.qsize() > 0

    def write(self, data: str) -> None:
        """Write to the terminal, except while the process is suspended or the terminal does not read."""
        if self._writer_thread is not None and self._writer_thread._queue.qsize() >= _MOST_WRITES:
            self.output_lost = True
        elif not self._suspended:
            super().write(data)

    def restore_terminal(self) -> None:
        """Restore the terminal without the event loop and the thread that writes, as far as it reads."""
        with contextlib.suppress(OSError, termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
            if select.select([], [self.fileno], [], 0)[1]:
                os.write(self.fileno, _RESTORE)

    def send_message(self, message: Message) -> None:
        """Queue an input event for the app; other messages reach it at once."""
        if not isinstance(message, InputEvent):
            super().send_message(message)
            return
        self.input.put(message)
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Hand events to the app while it has few."""
        while self._in_app() < _MOST_DELIVERED and (event := self.input.take()) is not None:
            self._app.post_message(event)
        # Before the queue is read: an event that arrives in between starts the next delivery.
        self._delivering = False
        if self.input:
            self._delivering = True
            self._loop.call_later(_DELIVERY_S, self._deliver)

    def _in_app(self) -> int:
        """The number of messages that the app, its screen and the focused widget have not handled."""
        app = self._app
        waiting = app.message_queue_size + len(getattr(app, "keys", ()))
        try:
            screen = app.screen
        except ScreenStackError:
            return waiting
        focused = 0 if screen.focused is None else screen.focused.message_queue_size
        return waiting + screen.message_queue_size + focused

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
            elif self.input.pause():
                self._app.call_later(self._app.notify, FLOOD_NOTICE, severity="warning")
            if self.input.flooded:
                # A flood is not decoded: the next input begins anew.
                decoder = InputDecoder()
                time.sleep(_FLOOD_STEP_S)
                continue
            for message in (*decoder.feed(data), *decoder.tick()):
                self.process_message(message)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows of the terminal that is drawn on; the base class asks stdout, which may be a file."""
        with contextlib.suppress(OSError):
            if not os.isatty(1):
                return os.get_terminal_size(self.fileno)
        return super()._get_terminal_size()

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
