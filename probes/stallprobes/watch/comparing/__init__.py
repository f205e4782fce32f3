"""Comparison of watched runs of one program before and after a change: their files, what is measured, what changed.

It may import every package of ``watch`` below the live view and attaching.
"""
