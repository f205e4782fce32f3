"""Comparison of two checks: the test of each percentile, what could have been detected, and the document.

Imports the matrix as data and below.
"""
