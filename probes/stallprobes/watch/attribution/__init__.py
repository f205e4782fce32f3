"""Causes of slow calls by the strongest evidence, as findings.

Imports ``reading``.
"""
