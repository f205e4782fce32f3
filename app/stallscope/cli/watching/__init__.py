"""What the commands that watch a program share: the session, its screen, its files and its replay.

Imports process and below.
"""
