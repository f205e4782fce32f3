"""Probes that profile their own process with CUPTI as torch.profiler does: while it records, between, and after it."""

from __future__ import annotations

from stallprobes.catalog.entry import (
    BOTH,
    Cause,
    Entry,
    ProgramMaker,
    Relation,
)
from stallprobes.model import MS, Needs, Op, Program, Role, Word

# CUPTI's numbers of the record kinds that a profiling aggressor enables: copies, memsets, driver calls, concurrent
# kernels. torch.profiler enables these kinds too.
KINDS = (1, 2, 4, 10)
# Flag of cuptiActivityFlushAll (CUPTI_ACTIVITY_FLAG_FLUSH_FORCED): CUPTI also returns incomplete buffers.
_FORCED = 1
# Argument of the native helper discard_records: discard the records in buffers that CUPTI has returned.
_COMPLETED = 0
# Argument of the native helper discard_records: discard all records.
_ALL = 1

# Approximate duration (ns) of one iteration of a profiling aggressor. The duration must be less than 0.7 s, the longest
# wait of an ending engine for its probes. The duration may exceed the 250 ms without progress that a check accepts:
# each sleep of the aggressor is a call, and a call in flight counts as progress.
ITERATION_NS = 400 * MS
# Length (ns) of each profile of the aggressor profiler-sessions, and of the pause after each profile.
SESSION_NS = 20 * MS
# Number of profiles in an iteration of the aggressor profiler-sessions.
SESSIONS = ITERATION_NS // (2 * SESSION_NS)
# Length (ns) of the only profile in an iteration of the aggressors profiler-ended and profiler-detached.
PROFILE_NS = 5 * MS
# Longest wait (ns) of a profiling aggressor for the CUPTI mutex. A few other profilers may hold the mutex first.
_OTHERS_NS = 2_000 * MS
# Pause (ns) of a profiling aggressor after the release of the CUPTI mutex. In the pause, a waiting thread can take the
# mutex. Reason for the length: a waiting thread polls the mutex at shorter intervals.
_PAUSE_NS = 1 * MS

# Memory word of the mutex for CUPTI. Only the thread that holds the mutex profiles. Reason: CUPTI's state is common to
# the whole process.
_MUTEX = Word("CUPTI", shared=True)


# Operations that end a profile: disabling the profile's kinds of records, and flushing all records.
_STOP = (
    *(Op("cupti:cuptiActivityDisable", (kind,), label="cuptiActivityDisable") for kind in KINDS),
    Op("cupti:cuptiActivityFlushAll", (_FORCED,), label="cuptiActivityFlushAll"),
)


def _profile(ns: int) -> tuple[Op, ...]:
    """A profile of ``ns``, whose records are thrown away. CUPTI stays attached."""
    return (
        Op("cupti:cuptiActivityRegisterCallbacks", (), label="cuptiActivityRegisterCallbacks"),
        *(Op("cupti:cuptiActivityEnable", (kind,), label="cuptiActivityEnable") for kind in KINDS),
        Op("native:sleep", (ns,), phase=None, label="profile"),
        *_STOP,
        Op("native:discard_records", (_COMPLETED,), phase=None),
    )


def _rest(ns: int) -> Op:
    return Op("native:sleep", (ns,), phase=None, label="rest")


# Operations that detach CUPTI from the process after a profile.
_DETACH = (
    Op("cupti:cuptiFinalize", (), label="cuptiFinalize"),
    # A buffer that CUPTI has not returned before is not returned later.
    Op("native:discard_records", (_ALL,), phase=None),
)


def _program(*ops: Op) -> ProgramMaker:
    """Maker of the program of an iteration that begins and ends without CUPTI.

    The baselines before and after it are therefore of a process without a profiler. After a failed call, all kinds of
    records are off, too.
    """
    release = Op("native:store", (_MUTEX, 0), phase=None)
    own = (
        Op("native:lock", (_MUTEX, _OTHERS_NS), phase=None),
        *ops,
        release,
        Op("native:sleep", (_PAUSE_NS,), phase=None),
    )
    return lambda _placement, _size: Program(ops=own, undo=(*_STOP, *_DETACH, release), context=None)


_RECORDING = Cause(
    process=Relation.SAME,
    phases=BOTH,
    short="CUPTI attaches and records, which holds up all calls",
    short_remedy="make one longer profile, and record only what is needed",
    why="CUPTI intercepts the driver calls of its process. It attaches itself with the first call of its API, which "
    "holds up all calls that submit work for 5 to 15 ms (H200). In many profiles the first call of a thread takes 0.2 "
    "to 0.4 ms, in which CUPTI requests a buffer, and each call that is recorded 1 to 2 µs longer.",
    remedy="Make one longer profile in place of many short ones, and record only the kinds that are needed.",
)
_ATTACHED = Cause(
    process=Relation.SAME,
    phases=BOTH,
    short="CUPTI stays attached, and calls still pass through it",
    short_remedy="detach CUPTI after the profile (TEARDOWN_CUPTI=1)",
    why="CUPTI stays attached after the last kind of records is disabled: calls of its process still pass through it, "
    "although nothing is recorded.",
    remedy="Detach CUPTI when the profile has ended: cuptiFinalize; for torch.profiler, set TEARDOWN_CUPTI=1 before "
    "the program starts.",
)
_DETACHING = Cause(
    process=Relation.SAME,
    phases=BOTH,
    short="CUPTI attaches for a short time, which holds up all calls",
    short_remedy="profile rarely",
    why="CUPTI is attached for a short time, records, and is detached again. To attach it holds up all calls that "
    "submit work for 5 to 15 ms (H200); those after it take as long as before.",
    remedy="Profile rarely.",
)


def _entry(name: str, title: str, program: ProgramMaker, what: str, source: str, *causes: Cause) -> Entry:
    return Entry(
        name=name,
        title=title,
        role=Role.AGGRESSOR,
        program=program,
        what=f"{what}, in a loop. It records kernels, copies, memsets and driver calls and throws the records away.",
        source=source,
        causes=causes,
        needs=Needs(libcupti=True),
        note="A process has one user of CUPTI: beside this probe the timeline cannot be switched on, and several "
        "profilers run one after the other. Each iteration ends with cuptiFinalize, so that CUPTI is detached while "
        "the probe is off. The probe is refused beside graph launches: on an H200 (driver 580.159.04) cuptiFinalize "
        "while they are in flight loses the context with error 719.",
    )


ENTRIES = (
    _entry(
        "profiler",
        "CUPTI tracing",
        _program(*_profile(ITERATION_NS), *_DETACH),
        "A profile of its process with CUPTI for 0.4 s, then cuptiFinalize",
        "pytorch/pytorch #144455: a program while torch.profiler records",
        _RECORDING,
    ),
    _entry(
        "profiler-sessions",
        "CUPTI tracing · short",
        _program(*(op for _ in range(SESSIONS) for op in (*_profile(SESSION_NS), _rest(SESSION_NS))), *_DETACH),
        f"{SESSIONS} profiles of its process with CUPTI of 20 ms each, with 20 ms between them, then cuptiFinalize",
        "programs that profile a few steps again and again",
        _RECORDING,
    ),
    _entry(
        "profiler-ended",
        "CUPTI attached",
        _program(*_profile(PROFILE_NS), _rest(ITERATION_NS), *_DETACH),
        "A profile of its process with CUPTI for 5 ms, 0.4 s in which CUPTI is attached and records nothing, then "
        "cuptiFinalize",
        "pytorch/pytorch #144455: a program after torch.profiler has recorded",
        _ATTACHED,
    ),
    _entry(
        "profiler-detached",
        "CUPTI detached",
        _program(*_profile(PROFILE_NS), *_DETACH, _rest(ITERATION_NS)),
        "A profile of its process with CUPTI for 5 ms, cuptiFinalize, then 0.4 s in which CUPTI is detached",
        "pytorch/pytorch #144455, its remedy: TEARDOWN_CUPTI=1 makes torch.profiler call cuptiFinalize",
        _DETACHING,
    ),
)
