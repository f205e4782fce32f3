"""The monitor: probes switched on and off, their figures, histograms, heat map and verdicts, live."""
