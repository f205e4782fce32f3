"""Files: atomic writer, compression, bounded decompression, validating JSON reader, published schemas.

It may import errors and no other package.
"""
