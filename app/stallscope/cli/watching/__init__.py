"""Parts of the commands that watch a program: the session, its screen, its files and its replay.

Imports process and below.
"""
