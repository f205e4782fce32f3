"""Attaching to a process that runs: whether it can be done, the injected library in it, awake or asleep.

It imports the options of watching and the native attacher, and of the reader what is read from outside. What the helper
process runs (``helper_process`` and below) imports no NumPy, which would start threads in it.
"""
