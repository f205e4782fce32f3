"""Numbers: histograms, windows, baselines and statistics.

Imports only the model.
"""
