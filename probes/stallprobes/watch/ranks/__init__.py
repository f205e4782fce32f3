"""Ranks: watched processes that communicate by kernels such as NCCL's, and which of them waits for which.

Arrays of such kernels become rounds and sums of nanoseconds. Imports ``division``, ``reading`` and ``intervals``.
"""
