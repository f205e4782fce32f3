"""Sections of the demo's help: (title, text)."""

from __future__ import annotations

SECTIONS = (
    (
        "The demo",
        "It goes through the patterns by itself. quiet: the victims without aggressors, until the baseline is "
        "complete. stall: the aggressors run. remedy: the same work arranged so that nothing waits; its own baseline "
        "is measured first. The caption says what runs and what to look at. A pattern that this machine does not "
        "support is skipped, and named in the table at the end. The demo waits while a dialog is open.",
    ),
)
