"""Calls of the simulated driver, one module for each kind: the locks they hold, and the jobs they submit.

Imports the host thread, the device and below; the resolver of the machine imports it.
"""
