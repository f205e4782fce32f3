"""The processes that use the GPUs, to choose from: as text, as a document, or on the screen."""

from __future__ import annotations

from stallprobes.files import codec
from stallprobes.machine.gpu_processes import GpuProcessList, ProcessesDocument
from stallprobes.wording import process_wording
from stallscope.cli import screen
from stallscope.cli.process import diagnostics, foreground
from stallscope.cli.process.diagnostics import CommandError
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output
from stallscope.report.process_text import show_processes
from stallscope.tui.settings import Settings
from stallscope.tui.sources.gpu_processes import GpuProcessSource

# Longest wait (s) for NVML's list of processes if the list is printed. Reason for the long wait: the first call to NVML
# loads the driver's libraries.
_ANSWER_S = 20.0
# Longest wait (s) for NVML's list of processes if a screen shows the list. After this time the screen opens without the
# list and says that NVML does not answer.
_OPEN_S = 2.0


def print_list(as_json: bool) -> None:
    """Write the list to stdout, as text or as a document.

    Raises CommandError (WatchExit.FAILED) without NVML and without devices of NVIDIA, or if NVML does not answer.
    """
    source = GpuProcessSource()
    source.start()
    try:
        with Progress() as progress:
            progress.begin("asking NVML for the processes", at_most_s=_ANSWER_S)
            listing = source.wait(_ANSWER_S)
        if listing is None:
            why = source.failure or process_wording.silent_text(_ANSWER_S)
            raise CommandError(foreground.WatchExit.FAILED, why)
    finally:
        source.close()
    _require_usable(listing)
    with Output() as out:
        if as_json:
            out.json(codec.plain(ProcessesDocument.of_list(listing, process_wording.problems(listing))))
        else:
            show_processes(out, listing)


def choose(known: Settings) -> int:
    """The process that is chosen on the screen. Without a choice it ends this process with the screen's exit code.

    Raises CommandError (WatchExit.FAILED) without NVML and without devices of NVIDIA.
    """
    source = GpuProcessSource()
    source.start()
    try:
        listing = source.wait(_OPEN_S)
        if listing is not None:
            _require_usable(listing)
        code, pid = screen.run_app(lambda: source, known, first="processes")
    finally:
        source.close()
    if pid is None or code:
        diagnostics.exit_process(code)
    return pid


def _require_usable(listing: GpuProcessList) -> None:
    if not listing.usable:
        raise CommandError(foreground.WatchExit.FAILED, process_wording.unusable_text(listing))
