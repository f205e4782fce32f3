"""The command line: one module per command, the options they share, stdout, stderr, signals and exit codes.

Modules import click and each other; a command imports reports, screens and ``stallprobes`` when it runs.
"""
