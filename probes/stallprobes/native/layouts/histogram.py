"""Buckets of the log-linear histograms: SUB of them for each octave; ``latency.histogram`` has the formula."""

# Number of buckets in an octave (as bits, and itself), and number of all buckets.
SUB_BITS = 6
SUB = 1 << SUB_BITS
BUCKETS = 2304
