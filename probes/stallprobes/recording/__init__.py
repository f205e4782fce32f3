"""Recordings of what a live screen observes: observations, the recorder, and readers by position or as a stream.

Imports traces, engine and below; judges nothing.
"""
