"""Files: atomic writer, compression, bounded decompression, the codec of JSON, published schemas.

It may import errors and no other package.
"""
