"""The engine: the process that owns contexts, buffers and probe threads, its session, and its backends.

It may import catalog, latency, machine and below; importing session loads no CUDA."""
