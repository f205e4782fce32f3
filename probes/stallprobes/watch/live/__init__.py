"""A watched program while it runs: rows, traces of its last moments, and recordings of them.

Imports everything else of ``watch``.
"""
