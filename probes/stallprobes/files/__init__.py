"""Files: atomic writer, compression, bounded decompression, validating JSON reader, published schemas, shared memory.

It may import errors and no other package.
"""
