"""Buckets of the log-linear histograms: SUB of them for each octave; ``latency.histogram`` has the formula."""

SUB_BITS = 6
SUB = 1 << SUB_BITS
BUCKETS = 2304
