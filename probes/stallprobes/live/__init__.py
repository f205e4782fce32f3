"""Analysis for the screen: the analyzer and its view models, baselines, the verdict log, and what a replay says.

Imports recording, verdicts, engine and below; knows no widget.
"""
