"""Wording about the processes that use the GPUs: where the list is from, why it may be empty, and figures in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from stallprobes.machine.gpu_processes import ContextKind, GpuProcessList, ListedProcess, ProcessSource
from stallprobes.units import plural, three

# Text in place of an unknown value.
NOT_KNOWN = "n/a"
# Letter of each kind of context in a list of processes.
_LETTERS = {ContextKind.COMPUTE: "C", ContextKind.GRAPHICS: "G", ContextKind.MPS: "M"}


def headline(listing: GpuProcessList) -> str:
    """Numbers of processes and of their GPUs, and the source of these numbers; a sentence. For a list that is not
    empty."""
    if listing.source is ProcessSource.NVML:
        return f"{plural_of_processes(len(listing.processes))} on {plural(len(listing.gpus), 'GPU')}, listed by NVML."
    hidden = sum(not process.visible for process in listing.processes)
    visible = len(listing.processes) - hidden
    have = f"{plural_of_processes(visible)} {'has' if visible == 1 else 'have'} /dev/nvidia* open"
    if listing.nvml_problem:
        return f"{have}."
    if hidden:
        return f"{have}; NVML lists {hidden} that {'is' if hidden == 1 else 'are'} not visible here."
    return f"{have}; NVML lists none."


def plural_of_processes(count: int) -> str:
    """``1 process``, ``2 processes``."""
    return f"{count} process{'' if count == 1 else 'es'}"


def empty_text(listing: GpuProcessList) -> str:
    """The sentence for a list without processes, with the possible reasons."""
    none = "No process uses a GPU: NVML lists none, and no process whose files are visible here has /dev/nvidia* open."
    if listing.nvml_problem:
        none = "No process whose files are visible here has /dev/nvidia* open."
    if listing.host_namespace:
        return none
    return (
        f"{none} Process ids here are those of a container, so processes outside it are not visible: run stallscope on "
        "the host, or the container with the host's process ids (docker run --pid=host)."
    )


def unusable_text(listing: GpuProcessList) -> str:
    """Why nothing can be listed, and what to do; a sentence without its end, of a list that is not ``usable``."""
    return f"the processes that use GPUs cannot be listed: {listing.nvml_problem}"


def silent_text(silent_s: float) -> str:
    """The sentence, without its end, for a reading that does not end."""
    return f"NVML or /proc has not answered for {silent_s:.0f} s; check dmesg for Xid errors and hung tasks"


def problems(listing: GpuProcessList) -> list[str]:
    """A sentence for whatever could not be read."""
    sentences = [f"NVML cannot be used: {listing.nvml_problem}."] if listing.nvml_problem else []
    return sentences + [f"{problem}." for problem in listing.gpu_problems]


def user_text(process: ListedProcess) -> str:
    """The user of a process."""
    return "?" if process.user is None else process.user


def command_text(process: ListedProcess) -> str:
    """The command of a process, with its arguments."""
    return "? (not visible here)" if process.command is None else process.command


def short_command_text(process: ListedProcess) -> str:
    """The command without the folder of its program, for a column."""
    program, blank, arguments = command_text(process).partition(" ")
    return f"{program.rpartition('/')[2] or program}{blank}{arguments}"


def gpus_text(process: ListedProcess) -> str:
    """Indexes of its GPUs: ``0``, ``0,2``, ``0-7``; ``?`` if unknown."""
    return ranges_text(process.gpu_numbers) or "?"


def ranges_text(numbers: Sequence[int]) -> str:
    """Increasing ``numbers`` in short: ``0-3,6``."""
    # What follows one another has the same distance from its place.
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda item: item[1] - item[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def memory_text(size: int | None) -> str:
    """Bytes as ``512 MiB`` or ``60.2 GiB``."""
    if size is None:
        return NOT_KNOWN
    return f"{size / 2**20:.0f} MiB" if size < 1000 * 2**20 else f"{three(size / 2**30)} GiB"


def percent_text(percent: float | None) -> str:
    """A utilization as ``97 %``."""
    return NOT_KNOWN if percent is None else f"{percent:.0f} %"


def kinds_text(process: ListedProcess) -> str:
    """Kinds of its contexts, in letters: ``C``, ``G``, ``C+G``, ``M``; ``?`` if unknown."""
    return "+".join(_LETTERS[kind] for kind in process.kinds) or "?"


def attach_word(process: ListedProcess) -> str:
    """Word that says whether it can be attached."""
    return "own" if process.own else "yes" if process.refusal is None else "no"


def cells(process: ListedProcess) -> tuple[str, str, str, str, str, str]:
    """Its process id, user, GPUs, kinds of contexts, memory and utilization of the SMs, for the columns of a table."""
    memory, busy = memory_text(process.memory_bytes), percent_text(process.utilization_percent)
    return str(process.pid), user_text(process), gpus_text(process), kinds_text(process), memory, busy


def refusal_text(process: ListedProcess) -> str:
    """Why a process cannot be attached, as a sentence; "" if it can."""
    return "" if process.refusal is None else refusal_sentence(process.refusal)


def refusal_sentence(refusal: str) -> str:
    """A refusal as a whole sentence."""
    return f"Cannot be attached: {refusal.rstrip('.')}."


def uses_text(process: ListedProcess) -> str:
    """Its use of each GPU: ``GPU 0: 60.2 GiB, SMs 97 %; GPU 1: …``; of open devices their GPUs: ``GPU 0-1``."""
    if all(use.memory_bytes is None and use.utilization_percent is None for use in process.gpus):
        return f"GPU {ranges_text(process.gpu_numbers)}" if process.gpus else ""
    return "; ".join(
        f"GPU {use.gpu}: {memory_text(use.memory_bytes)}, SMs {percent_text(use.utilization_percent)}"
        for use in process.gpus
    )
