"""Traces: what the timeline recorded in a span of time, kept, explained and exported.

Belongs here: the trace itself, the history of a live timeline, the reason of a delay, and formats of traces. Imports
engine and below; knows no screen.
"""
