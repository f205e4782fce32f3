"""The work of ``check``: plan, schedule, cells, matrix, comparison and merge, with their documents.

Imports verdicts, engine, patterns and below.
"""
