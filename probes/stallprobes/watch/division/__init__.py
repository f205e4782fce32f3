"""The division of a program's wall time: which part of it the GPU works, and what holds the program up in the rest.

Plain arrays become sums of nanoseconds, figures and a verdict. Imports ``reading`` and ``intervals``.
"""
