"""What is printed of an error: one line that says something, also of an error without a text."""

from __future__ import annotations

import builtins
import errno
import resource

import pytest

from stallprobes import errors
from stallprobes.errors import StallprobesError, WatchError, kind_and_text, reason_of
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError

PREFIX = "stallscope: "


def kinds() -> list[type[BaseException]]:
    """The kinds of errors of Python and of the package that need no argument."""
    found = []
    for kind in (*vars(builtins).values(), *vars(errors).values()):
        # Python gives a SyntaxError the text "None".
        if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, SyntaxError):
            try:
                kind()
            except TypeError:
                continue
            found.append(kind)
    return found


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_an_error_without_a_text_has_a_reason(kind: type[BaseException]) -> None:
    words = "too little memory" if kind is MemoryError else f"an error of the kind {kind.__name__}"
    assert reason_of(kind()) == words
    assert kind_and_text(kind()) == kind.__name__


def test_the_reason_of_an_error_with_a_text() -> None:
    assert reason_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "a")) == "No such file or directory"
    assert reason_of(OSError("no number")) == "no number"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"
    assert reason_of(MemoryError("Unable to allocate 8 GiB")) == "too little memory (Unable to allocate 8 GiB)"
    assert kind_and_text(ValueError("no number")) == "ValueError: no number"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (WatchError("The program is watched already."), "The program is watched already"),
        (CommandError(2, "the name is empty"), "the name is empty"),
        (StallprobesError(), "an error of the kind StallprobesError"),
    ],
    ids=["with a full stop", "of a command", "without a text"],
)
def test_an_error_of_stallscope_is_its_sentence(
    capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    diagnostics.print_failure(error)
    assert capsys.readouterr() == ("", f"{PREFIX}{sentence}\n")


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (resource.RLIM_INFINITY, "too little memory: end other programs, or use a machine with more"),
        (64 << 20, "too little memory (limit of the address space, ulimit -v: 64 MiB): raise the limit"),
    ],
)
def test_memory_that_is_too_little_is_said_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, limit: int, sentence: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    diagnostics.print_failure(MemoryError())
    assert capsys.readouterr() == ("", f"{PREFIX}{sentence}\n")


def test_a_defect_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.print_failure(KeyError())
    assert capsys.readouterr().err.splitlines() == [
        "KeyError",
        f"{PREFIX}this is a defect of stallscope: please report it",
    ]
