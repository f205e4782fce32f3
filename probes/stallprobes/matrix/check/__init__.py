"""The measurement of ``check``: the plan, the schedule of its windows, the cells and the runner.

Imports comparing and the matrix as data.
"""
