"""The library that is injected into a watched program: C sources, building, and the layout of the file it writes.

Imports nothing of the other packages of ``watch``.
"""
