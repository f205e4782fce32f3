"""The work of ``run``: patterns and probes measured once, and the JSON document of the result.

Imports verdicts, engine, patterns and below.
"""
