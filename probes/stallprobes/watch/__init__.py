"""The calls of another program: the injected library with its files and their reader, and what slow calls waited for.

It may import every package below, but no backend of the engine. Opening and reading files needs no GPU and no CUDA.
"""
