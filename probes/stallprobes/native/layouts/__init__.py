"""Layouts that C and Python share: each structure, constant and enumeration is written once, here.

``header`` generates the C declarations when the libraries are built; Python uses the classes themselves, and ``dtypes``
gives numpy's types of them. Standard library only: a build has no other package."""
