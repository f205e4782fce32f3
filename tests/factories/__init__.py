"""Objects that several tests make: matrices, runs, verdicts, machines, terminals. No tests and no pytest fixtures."""
