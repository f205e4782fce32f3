"""The simulated GPU: a discrete-event model in virtual time that executes the same programs and fills the same board.

What it does comes from rules (locks, streams, engines, time-slices), its figures from a profile. It knows no pattern
and no catalogue entry.
"""
