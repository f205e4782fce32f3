"""Probes that need no GPU."""

from __future__ import annotations

from stallprobes.model import Op, Probe, Program, Role


def host_probe(name: str, *ops: Op, period_ns: int = 1_000_000, setup: tuple[Op, ...] = ()) -> Probe:
    """A probe on the host; without ``ops`` it calls a function that does nothing."""
    program = Program(ops or (Op("native:nothing"),), context=None, setup=setup)
    return Probe(name, name, Role.HOST, program, period_ns, name)
