"""Shortages of memory, threads and files: what is asked for before, and which errors they explain."""

from __future__ import annotations

import errno
import os

import pytest

from stallprobes.machine.shortage import descriptor_shortage, memory_shortage, shortage

# What dlopen says through Python, with and without numpy's page around it.
UNMAPPED = ImportError("libstdc++.so.6: failed to map segment from shared object")


class WorkerError(Exception):
    """As Textual's, which has the error of the worker as an attribute."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"Worker raised exception: {error!r}")
        self.error = error


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "too little memory"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "too little memory"),
        (caused(ImportError("IMPORTANT: PLEASE READ THIS"), UNMAPPED), "too little memory"),
        (OSError("libcuda.so.1: cannot allocate memory in static TLS block"), "too little memory"),
        (WorkerError(RuntimeError("can't start new thread")), "no thread can be started"),
        (
            caused(ValueError("no style sheet"), OSError(errno.EMFILE, "Too many open files")),
            "too few file descriptors",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (ModuleNotFoundError("No module named 'numpy'"), None),
        (RuntimeError("a mistake"), None),
        (WorkerError(KeyError("a mistake")), None),
    ],
    ids=repr,
)
def test_an_error_is_explained_by_the_shortage_that_caused_it(error: Exception, words: str | None) -> None:
    found = shortage(error)
    assert found is None if words is None else found is not None and words in found


def test_errors_that_name_each_other_are_looked_at_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert shortage(first) is None


def test_what_is_there_is_no_shortage_and_what_no_machine_has_is_one() -> None:
    assert memory_shortage(1 << 20) is None
    assert "more are needed" in (memory_shortage(1 << 62) or "")
    before = os.listdir("/proc/self/fd")
    assert descriptor_shortage(4) is None
    assert os.listdir("/proc/self/fd") == before
