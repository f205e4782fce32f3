"""The process of a command: its streams, signals, terminal and exit codes, and what starts before its modules load.

Imports reports' text and below; knows no command.
"""
