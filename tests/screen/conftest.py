"""All screen tests: the clock shows UTC, the user's settings do not count, and engines start by a fork."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from factories import forked_processes
from factories.screen import no_terminal_updates, processed_input, shared_styles


@pytest.fixture(autouse=True, scope="module")
def engines_by_fork() -> Iterator[None]:
    """Engines of the screens in this process start by a fork; those of screens in a terminal start as usual."""
    with forked_processes.engines():
        yield


@pytest.fixture(autouse=True, scope="module")
def input_is_processed() -> Iterator[None]:
    """After a key the pilot waits for what it causes; style sheets are parsed once."""
    with processed_input(), shared_styles():
        yield


@pytest.fixture(scope="module")
def without_terminal_updates() -> Iterator[None]:
    """Screens in this process make no output for a terminal."""
    with no_terminal_updates():
        yield


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """UTC, no settings file, colours allowed."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("STALLSCOPE_SETTINGS", os.devnull)
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
