"""Readers of a watched process: of the file that it writes, with its call stacks, and of what is visible from outside.

It reads the layout of ``native``.
"""
