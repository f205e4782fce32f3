"""The command line: one module per command, the options they share, stdout, stderr, signals and exit codes.

Modules import click, each other, report.text and stallprobes.errors; a command imports all else when it runs.
"""
