"""Numbers: histograms, their sparse form, windows and statistics.

Imports only the model.
"""
