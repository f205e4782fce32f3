"""Readers of a watched process: of the file that it writes, with its call stacks, and of what is visible from outside.

Imports ``injection``, for the layout.
"""
