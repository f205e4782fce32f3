"""Compiling of the native libraries, and the backend by which pip builds the package. Standard library only, but for
setuptools and wheel in the backend; nothing of the program imports it."""
