"""The demo without its screen: the plan of its steps, what the analyzer found in them, and their document.

Imports live and below.
"""
