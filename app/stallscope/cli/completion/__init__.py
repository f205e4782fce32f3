"""Shell completion: the words that complete a value. The scripts for the shells are click's.

Imports process and below.
"""
