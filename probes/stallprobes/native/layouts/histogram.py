"""Buckets of the log-linear histograms: SUB of them for each octave; ``latency.histogram`` has the formula."""

# Binary logarithm of the number of buckets in an octave (a factor of 2 in latency).
SUB_BITS = 6
# Number of buckets in an octave.
SUB = 1 << SUB_BITS
# Number of all buckets of a histogram.
BUCKETS = 2304
