"""Time of a program by the lines of its own code: sums of samples, and the lines that they make for each sequence.

Imports ``division`` and ``reading``.
"""
