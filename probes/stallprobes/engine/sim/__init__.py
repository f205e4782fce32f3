"""Simulated GPU: a discrete-event model in virtual time, by rules (locks, streams, engines) and a profile's parameters.

It may import the board and what describes it, engine.backend, engine.slots, engine.timeline, latency, model and errors;
never engine.cuda, patterns or the catalog.
"""
