"""Buckets of the log-linear histograms: SUB of them for each octave; ``latency.histogram`` has the formula."""

# Binary logarithm of the number of buckets in an octave (a factor of 2 in latency).
SUB_BITS = 6
# Number of buckets in an octave.
SUB = 1 << SUB_BITS
# Number of buckets of a histogram. A value above all buckets counts in the last bucket.
BUCKETS = 2304
