"""Screens that are dismissed only while they are the top one."""

from __future__ import annotations

from typing import Any

from textual.await_complete import AwaitComplete
from textual.screen import Screen


class TopScreen:
    """Mixin of a screen that a second answer does not dismiss again.

    Textual removes the top screen, whichever is dismissed. Two fast presses of enter select an option twice, and the
    second one would remove the screen below. It is no screen itself: Textual takes styles from the first base only.
    """

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Dismiss the screen with ``result``; without effect if it is not the top one."""
        assert isinstance(self, Screen)
        if self.app.screen is not self:
            return AwaitComplete()
        return Screen.dismiss(self, result)
