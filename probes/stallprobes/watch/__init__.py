"""The calls of a program that is not ours: the library injected into it, the files that it writes, and their reader.

It may import every package below, but no backend of the engine. Opening and reading files needs no GPU and no CUDA.
"""
