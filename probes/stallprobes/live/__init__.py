"""For the screen: observations, the analyzer, the view model, and recordings of them.

Imports verdicts, engine and below; knows no widget.
"""
