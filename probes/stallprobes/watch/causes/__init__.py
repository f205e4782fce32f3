"""Causes of slow calls: a file for each, with its rules, its sentence and its remedy, and the order in which they hold.

``order.py`` has them all; ``attribute.py`` asks them for each slow call. What they look at is in ``attribution``.
"""
