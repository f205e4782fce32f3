"""Files: atomic writer, validating JSON reader, published schemas. It may import errors and no other package."""
