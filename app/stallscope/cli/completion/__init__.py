"""Shell completion: the script for each shell, and the words that complete a value.

Imports process and below.
"""
