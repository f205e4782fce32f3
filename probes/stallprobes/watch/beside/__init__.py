"""Aggressors beside a watched program: turns with one and without, and what a step of the program takes in them.

Arrays of the begins of steps become rows of a table. Imports ``division``, ``reading`` and ``intervals``.
"""
