"""Causes of slow calls: a file for each sort of evidence, with its causes, their sentences and remedies, and its rules.

``order.py`` has them all, in the order in which their rules hold; ``attribute.py`` asks them for each slow call. What
they look at is in ``facts.py`` and in ``attribution``.
"""
