"""Probes that create, destroy and synchronize contexts."""

from __future__ import annotations

from stallprobes.catalog.entry import Cause, CheckPlacement, Entry, Hardware, Placement, Relation
from stallprobes.model import Device, Load, Op, Program, Role, Word

SCHED_SPIN_MAP_HOST = 0x01 | 0x08


def _context_churn(placement: Placement, _size: int) -> Program:
    context, popped = Word("context"), Word("popped")
    return Program(
        ops=(
            Op("cuCtxCreate", (context, SCHED_SPIN_MAP_HOST, Device(placement.context.device)), label="cuCtxCreate"),
            Op("cuCtxPopCurrent", (popped,), phase=None),
            Op("cuCtxDestroy", (Load(context),), label="cuCtxDestroy"),
        ),
        context=placement.context,
    )


def _context_sync(placement: Placement, _size: int) -> Program:
    return Program(ops=(Op("cuCtxSynchronize"),), context=placement.context)


ENTRIES = (
    Entry(
        name="context-churn",
        title="context create/destroy",
        role=Role.AGGRESSOR,
        program=_context_churn,
        check=(CheckPlacement(position=200),),
        what="cuCtxCreate and cuCtxDestroy in a loop. Each context takes about 0.5 GiB of GPU memory.",
        source="the report of secondary-context-d2d, its advice: create contexts before the critical part",
        causes=(
            Cause(
                uses=Hardware.GRAPHICS_ENGINE | Hardware.INLINE_COPY,
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
        program=_context_sync,
        check=(CheckPlacement(position=210),),
        what="cuCtxSynchronize in a loop.",
        source="programs that synchronize the device after every step",
        causes=(
            Cause(
                context=Relation.SAME,
                why="Each cuCtxSynchronize takes the context's lock in the driver for a short time.",
                remedy="Wait for a stream or an event; use blocking synchronization where many threads wait.",
            ),
        ),
    ),
)
