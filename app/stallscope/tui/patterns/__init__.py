"""The view of patterns: all variants, and all probes of the catalog."""
