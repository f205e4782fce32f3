"""Results as text and HTML, and the wording that text, page and screen share.

Imports stallprobes only: no command, no screen.
"""
