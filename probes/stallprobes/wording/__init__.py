"""Sentences that text reports, the HTML page, the screen and JSON share, one module for each subject.

Imports everything that it speaks of; whoever reads a sentence gets its figures from there, not from the sentence.
"""
