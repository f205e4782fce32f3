"""The timeline: what the GPU did and when, on the board's clock, from CUPTI or filled by the simulated GPU.

Belongs here: the collector, and the ring of GPU records on the board. It may import model, latency, native, records,
and from the engine the board.
"""
