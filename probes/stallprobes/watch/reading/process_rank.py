"""Rank of a process among those of one job, by the environment with which a launcher started it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import FileNotRead
from stallprobes.files import input_file
from stallprobes.files.codec import Unsigned

# Variables of torchrun, Open MPI, PMI, PMIx and Slurm, and the one with the number of ranks; the first that is there
# counts. LOCAL_RANK counts the ranks of one machine.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
_MOST_RANKS = 1 << 24
_MOST_BYTES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank: its ``number``, and how many the job has, None where that is not known.

    ``variable`` is the environment variable that says so; "" where the number is that of its GPU.
    """

    number: Unsigned
    size: Unsigned | None = None
    variable: str = ""


def rank_of(environment: Mapping[str, str]) -> Rank | None:
    """The rank that a process has by its environment; None without one."""
    for variable, size in _VARIABLES:
        number = _count(environment.get(variable))
        if number is not None:
            ranks = _count(environment.get(size))
            known = ranks is not None and ranks > number
            return Rank(number=number, size=ranks if known else None, variable=variable)
    return None


def environment_of(pid: int, proc: Path) -> Mapping[str, str]:
    """The environment with which the program of a process was started; empty where it cannot be read.

    What is in ``proc`` may be the process's own work: it need not be a file.
    """
    try:
        with input_file.opened(proc / str(pid) / "environ") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (FileNotRead, OSError):
        return {}
    # The first of two with one name is the one that counts.
    return dict(reversed([(name, value) for name, _, value in (one.partition("=") for one in text.split("\0"))]))


def _count(text: str | None) -> int | None:
    known = text is not None and text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_RANKS))
    return int(text) if known and text is not None and int(text) <= _MOST_RANKS else None
