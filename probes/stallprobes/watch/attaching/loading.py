"""Loading: a thread of a process that runs loads the injected library, by the attacher."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from stallprobes.errors import WatchError
from stallprobes.foreign_text import printable
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.target import Target, remedy_for_rights, replaced_sentence
from stallprobes.watch.reading.lack_text import lack_of, lack_sentence

# Longest run (s) of the attacher, the program that loads the library into another process. The attacher itself waits
# for the load for up to 5 s (LOADED_MS in attach.c).
ATTACHER_S = 30.0
# Largest number of characters that are shown of the attacher's reason for a failure.
_MAX_REASON = 300
# Text of EPERM in the attacher's reason for a failure.
_NOT_PERMITTED = os.strerror(1)


class _Outcome(IntEnum):
    """Exit code of the attacher. The enum outcome in attach.c describes each code."""

    ATTACHED = 0
    REFUSED = 3
    NO_THREAD = 4
    UNDER_WAY = 5
    NOT_LOADED = 6
    REPLACED = 7


@dataclass(frozen=True)
class Loaded:
    """What the attacher did: thread ``thread`` was stopped for ``stopped_ns``, and has to return from its memory.

    ``region`` is the address and the size (bytes) of that memory in the process. All figures are what the process has,
    which may be anything.
    """

    stopped_ns: int
    thread: int
    region: tuple[int, int]


@dataclass(frozen=True)
class Programs:
    """Descriptors of the attacher and of the injected library, which may lie where only this user can open them."""

    attacher: int
    library: int


def load_library(target: Target, image: ProcessImage, programs: Programs, threads: Sequence[int]) -> Loaded:
    """Let one of ``threads``, which sleep, load the library. Raises WatchError; then it is not loaded."""
    addresses = find_functions(target, image)
    words = [
        "stallscope-attach", str(target.pid), *(f"{address:x}" for address in addresses), str(programs.library),
        str(image.memory), str(image.descriptor), *map(str, threads),
    ]  # fmt: skip
    passed = [number for number in (programs.attacher, programs.library, image.memory, image.descriptor) if number >= 0]
    try:
        done = subprocess.run(
            words, executable=f"/proc/self/fd/{programs.attacher}", pass_fds=passed, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=ATTACHER_S, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WatchError(f"the attacher cannot be run ({error}): reinstall stallscope.") from error
    return _loaded(target, done.returncode, done.stdout)


def _loaded(target: Target, code: int, text: str) -> Loaded:
    said = dict(line.partition(" ")[::2] for line in text.splitlines())
    reason = printable(said.get("reason", ""))[:_MAX_REASON] or f"exit code {code}"
    who = target.title
    match code:
        case _Outcome.ATTACHED:
            region = int(said["region"]), int(said["region_bytes"])
            return Loaded(int(said["stopped_ns"]), int(said["tid"]), region)
        case _Outcome.UNDER_WAY:
            raise WatchError(f"attaching to {who} is still under way: a thread of it loads the library; try again.")
        case _Outcome.NO_THREAD:
            raise WatchError(f"{reason} in {who}: try again.")
        case _Outcome.NOT_LOADED if said.get("lack", "").isdigit():
            raise WatchError(lack_sentence(who, lack_of(int(said["lack"][:9]))))
        case _Outcome.NOT_LOADED:
            raise WatchError(f"{who} cannot load the library ({reason}): start it with stallscope watch.")
        case _Outcome.REPLACED:
            raise WatchError(replaced_sentence(who))
        case _:
            remedy = remedy_for_rights() if _NOT_PERMITTED in reason else "try again"
            raise WatchError(f"{who} cannot be attached ({reason}) and was left as it was: {remedy}.")
