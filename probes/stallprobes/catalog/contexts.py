"""Probes that create, destroy and synchronize contexts."""

from __future__ import annotations

from stallprobes.catalog.entry import (
    CALLS,
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Relation,
    called,
    repeated,
)
from stallprobes.model import Device, Load, Op, Role, Word

# Flags of a new context: CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST.
SCHED_SPIN_MAP_HOST = 0x01 | 0x08


# Memory word that receives the handle of the created context, for the call that destroys it.
_CONTEXT = Word("context")

ENTRIES = (
    Entry(
        name="context-churn",
        title="context create/destroy",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda placement, _: (
                called("cuCtxCreate", _CONTEXT, SCHED_SPIN_MAP_HOST, Device(placement.context.device)),
                Op("cuCtxPopCurrent", (Word("popped"),), phase=None),
                called("cuCtxDestroy", Load(_CONTEXT)),
            )
        ),
        check=(CheckPlacement(position=200),),
        what="cuCtxCreate and cuCtxDestroy in a loop. Each context takes about 0.5 GiB of GPU memory.",
        source="the report of secondary-context-d2d, its advice: create contexts before the critical part",
        causes=(
            Cause(
                uses=Hardware.GRAPHICS_ENGINE | Hardware.INLINE_COPY,
                phases=WAITS,
                short="it runs work in a new context, and one context runs at a time",
                short_remedy="create contexts before the critical part and keep them",
                why="Creating and destroying a context runs work in it on the graphics engine, which runs one "
                "context at a time. On an H200 most calls keep their time, 1 wait in 100 takes up to "
                "0.3 ms, and some take 1.4 ms; copy engines do not wait.",
                remedy="Create contexts before the critical part and keep them.",
            ),
        ),
    ),
    Entry(
        name="context-sync",
        title="cuCtxSynchronize",
        role=Role.AGGRESSOR,
        program=repeated(lambda *_: (Op("cuCtxSynchronize"),)),
        check=(CheckPlacement(position=210),),
        what="cuCtxSynchronize in a loop.",
        source="programs that synchronize the device after every step",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="each cuCtxSynchronize takes the context's lock",
                short_remedy="wait for a stream or an event; block where many threads wait",
                why="Each cuCtxSynchronize takes the context's lock in the driver for a short time.",
                remedy="Wait for a stream or an event; use blocking synchronization where many threads wait.",
            ),
        ),
    ),
)
