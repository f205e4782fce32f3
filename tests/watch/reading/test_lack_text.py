"""Sentences about what a process lacks for a recording."""

from __future__ import annotations

import pytest

from stallprobes.native.layouts.watch_file import Lack
from stallprobes.watch.reading.lack_text import lack_of, lack_sentence

MIB = 1 << 20


def test_a_lack_with_figures_has_cause_and_remedy() -> None:
    assert lack_sentence("x (process 1)", Lack.CGROUP, 30 * MIB, 12 * MIB + 1) == (
        "x (process 1) has 12 MiB left of its container's memory limit (cgroup), and recording takes 30 MiB, so nothing"
        " of it is recorded: raise the limit, or use --calls-only."
    )
    assert lack_sentence("x (process 1)", Lack.FILE_SIZE, 390_000_000, 4096) == (
        "x (process 1) has 4 KiB as its limit of file sizes (ulimit -f), and recording takes 372 MiB, so nothing of it"
        " is recorded: raise the limit before it starts."
    )
    assert lack_sentence("x (process 1)", Lack.MEMFD) == (
        "x (process 1) cannot be recorded: it may not make memory with a name (memfd_create); allow that in its seccomp"
        " filter, or start it with stallscope watch."
    )


@pytest.mark.parametrize("lack", list(Lack))
@pytest.mark.parametrize(("needed", "available"), [(0, 0), (1, 0), (10**20, 10**19), (3 << 30, 5 << 29)])
def test_every_lack_is_one_sentence_with_a_remedy(lack: Lack, needed: int, available: int) -> None:
    sentence = lack_sentence("x (process 1)", lack, needed, available)
    assert sentence.startswith("x (process 1) ")
    assert sentence.endswith(".")
    assert 60 < len(sentence) < 260


def test_an_unknown_number_is_an_unknown_lack() -> None:
    assert [lack_of(number) for number in (0, 2, 9, 10, 99)] == [
        Lack.UNKNOWN, Lack.CGROUP, Lack.THREADS, Lack.UNKNOWN, Lack.UNKNOWN
    ]  # fmt: skip
