"""Command palette that accepts keys before its list is drawn, and runs one command."""

from __future__ import annotations

from textual import on
from textual.command import CommandInput, CommandList, CommandPalette
from textual.message import Message

from stallscope.tui.common.dialog import TopScreen


class Palette(TopScreen, CommandPalette):
    """Textual's command palette; its list ignores keys until it has lines."""

    @on(CommandInput.Submitted)
    @on(CommandList.OptionSelected)
    def ignore_after_dismissal(self, event: Message) -> None:
        """Ignore a second selection: Textual's palette would run the command again."""
        if self.app.screen is not self:
            event.stop()
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        """Run an action of the list. Without a size the list knows no lines, and Textual's raises KeyError."""
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)
