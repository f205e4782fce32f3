"""Verdicts: kinds, data and the rules that derive them from windows.

Imports the catalogue and latency; a file reader imports the data alone.
"""
