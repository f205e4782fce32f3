"""Source of the processes that use the GPUs. No method but ``wait`` blocks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from importlib import import_module

from stallprobes.machine.answers import in_thread
from stallprobes.machine.gpu_process_reader import SILENT_AFTER_S, GpuProcessReader
from stallprobes.machine.gpu_processes import GpuProcessList, GpuProcessLister, answer_of
from stallprobes.wording import process_wording


def refusal_of(pid: int) -> str | None:
    """Why the process ``pid`` cannot be attached, as ``stallprobes.watch.attaching.refusal``; loaded when it is asked.

    It is asked in the reading thread, so that the first frame need not wait for its modules.
    """
    refusal: str | None = import_module("stallprobes.watch.attaching.refusals").refusal(pid)
    return refusal


def _new_reader() -> GpuProcessReader:
    return GpuProcessReader(GpuProcessLister(refusal_of).read)


class GpuProcessSource:
    """Reads the list between ``start`` and ``stop``, any number of times.

    ``new_reader`` makes a reader that has not started; ``refusal`` says why a process cannot be attached.
    """

    report_s = 0.0
    engine = program = playback = recorded_traces = None

    def __init__(
        self,
        *,
        new_reader: Callable[[], GpuProcessReader] = _new_reader,
        refusal: Callable[[int], str | None] = refusal_of,
    ) -> None:
        self._new_reader = new_reader
        self._reader: GpuProcessReader | None = None
        self._refusal = refusal

    def start(self) -> None:
        """Start to read; a second call does nothing."""
        if self._reader is None:
            self._reader = self._new_reader()
            self._reader.start()

    def stop(self) -> None:
        """Read no more, until the next ``start``."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def close(self) -> None:
        """Read no more."""
        self.stop()

    def wait(self, timeout_s: float) -> GpuProcessList | None:
        """The first list; None if there is none after ``timeout_s`` seconds. The only method that waits."""
        return None if self._reader is None else self._reader.wait(timeout_s)

    def refusal(self, pid: int) -> Future[str | None]:
        """Why the process ``pid`` cannot be attached now, None if it can.

        In a thread that does not hold up the end of the program: the memory map of a process that hangs in the kernel
        may hang whoever reads it.
        """
        return in_thread(partial(answer_of, self._refusal, pid), "refusal")

    @property
    def listing(self) -> GpuProcessList | None:
        """The last list, None before the first."""
        return None if self._reader is None else self._reader.latest

    @property
    def failure(self) -> str:
        """Why the list is not the present one, as a sentence without its end; "" if it is."""
        reader = self._reader
        if reader is None:
            return ""
        if reader.silent_s > SILENT_AFTER_S:
            return process_wording.silent_text(reader.silent_s)
        return f"the processes cannot be read: {reader.failure}" if reader.failure else ""
