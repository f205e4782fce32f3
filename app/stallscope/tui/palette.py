"""Command palette that accepts keys before its list is drawn."""

from __future__ import annotations

from textual.command import CommandList, CommandPalette


class Palette(CommandPalette):
    """Textual's command palette; its list ignores keys until it has lines."""

    def _action_command_list(self, action: str) -> None:
        """Run an action of the list. Without a size the list knows no lines, and Textual's raises KeyError."""
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)
