"""The Textual app: a package per screen, sources of observations, and what screens share.

Imports stallprobes and report; a screen imports common, never another screen.
"""
