"""All screen tests: the clock shows UTC, and the user's settings do not count."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest


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
