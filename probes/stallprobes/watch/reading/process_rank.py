"""Rank of a process among those of one job, by the environment with which a launcher started it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stallprobes.files.codec import Document, String, Unsigned
from stallprobes.watch.reading.proc_files import content

# Pairs of environment variables: rank, and number of ranks. They are from torchrun, Open MPI, PMI, PMIx and Slurm. The
# first rank that is set counts. LOCAL_RANK is last, since it only counts the ranks of one machine.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
# Names of all environment variables in _VARIABLES.
VARIABLES = tuple(dict.fromkeys(name for pair in _VARIABLES for name in pair))
# Largest number that an environment variable may give for the rank or for the number of ranks. A larger number is
# ignored.
_MOST_RANKS = 1 << 24
# Largest size (bytes) of a process's environment that is read.
_MOST_BYTES = 1 << 21


class Rank(Document, kw_only=True):
    """A rank of a job."""

    number: Unsigned
    size: Unsigned | None = None
    """How many the job has; null where that is not known."""
    variable: String = ""
    """The environment variable that says so; empty where the number is that of its GPU."""


def rank_of(environment: Mapping[str, str]) -> Rank | None:
    """The rank that a process has by its environment; None without one."""
    for variable, size in _VARIABLES:
        number = _count(environment.get(variable))
        if number is not None:
            ranks = _count(environment.get(size))
            consistent = ranks is not None and ranks > number
            return Rank(number=number, size=ranks if consistent else None, variable=variable)
    return None


def environment_of(pid: int, proc: Path) -> Mapping[str, str]:
    """The environment with which the program of a process was started; empty where it cannot be read."""
    entries = content(proc / str(pid) / "environ", _MOST_BYTES).decode("utf-8", "replace").split("\0")
    # The first of two with one name is the one that counts.
    return dict(reversed([(name, value) for name, _, value in (entry.partition("=") for entry in entries if entry)]))


def _count(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_RANKS))
    return int(text) if is_number and text is not None and int(text) <= _MOST_RANKS else None
