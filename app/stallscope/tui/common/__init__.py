"""What every screen uses: the base screen, dialogs, help, key bar, and drawing of lines.

Imports no screen.
"""
