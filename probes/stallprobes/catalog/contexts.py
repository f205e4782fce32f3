"""Whole contexts: made and ended, and waited for."""

from __future__ import annotations

from stallprobes.catalog.entry import Cause, Entry, Place
from stallprobes.model import Device, Load, Op, Program, Role, Word

SCHED_SPIN_MAP_HOST = 0x01 | 0x08


def _context_churn(place: Place, _size: int) -> Program:
    context, popped = Word("context"), Word("popped")
    return Program(
        ops=(
            Op("cuCtxCreate", (context, SCHED_SPIN_MAP_HOST, Device(place.context.device)), label="cuCtxCreate"),
            Op("cuCtxPopCurrent", (popped,), phase=None),
            Op("cuCtxDestroy", (Load(context),), label="cuCtxDestroy"),
        ),
        context=place.context,
    )


def _context_sync(place: Place, _size: int) -> Program:
    return Program(ops=(Op("cuCtxSynchronize"),), context=place.context)


ENTRIES = (
    Entry(
        name="context-churn",
        title="context create/destroy",
        role=Role.AGGRESSOR,
        program=_context_churn,
        what="cuCtxCreate and cuCtxDestroy, again and again. Each context takes about 0.5 GiB of GPU memory.",
        source="the report of secondary-context-d2d, its advice: create contexts beforehand, not in the critical part",
        causes=(
            Cause(
                why="Making and ending a context takes the device's memory management and work on the GPU itself.",
                helps="Create contexts before the critical part and keep them.",
            ),
        ),
    ),
    Entry(
        name="context-sync",
        title="cuCtxSynchronize",
        role=Role.AGGRESSOR,
        program=_context_sync,
        what="cuCtxSynchronize in a loop.",
        source="the habit of a device synchronise after every step",
        causes=(
            Cause(
                context="same",
                why="cuCtxSynchronize takes the context's lock in the driver for a moment each time.",
                helps="Wait for a stream or an event, and with blocking sync where many threads wait.",
            ),
        ),
    ),
)
