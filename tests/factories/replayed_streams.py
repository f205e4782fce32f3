"""Replays of streams beside the injected library, and what is compared of the replayed and the recorded program."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from factories.call_stream import CallStream
from factories.stand_in import StandIn
from factories.watched_folders import ActivityRecord
from factories.watched_programs import Watched, findings_of, read_watched
from stallprobes.native.layouts.watch_file import COLLECTED, DEFAULT_SLOW_NS
from stallprobes.watch.attribution.findings import CallAlongside, ExplainedCall
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.process import DriverCall, SlowDriverCall, WatchedProcess, WatchedThread

# Every call with its times, and every record: on a busy machine the limit of the cost would leave some out.
EVERY_CALL = WatchOptions(slow_ns=0, stacks=False, cost=1.0)


def replayed(replaying: StandIn, stream: CallStream, folder: Path, slow_ns: int = DEFAULT_SLOW_NS) -> Watched:
    """What the library writes to ``folder`` of the replayed ``stream``."""
    process = stream.process
    options = WatchOptions(slow_ns=slow_ns, calls_only=process.calls_only, stacks=False, cost=1.0)
    outcome = replaying.run(folder, str(stream.save(folder.with_suffix(".stream"))), program="replay", options=options)
    ended = 0 if process.ended_ns is not None else -signal.SIGKILL
    assert (outcome.returncode, outcome.output, outcome.errors) == (ended, "", "")
    return read_watched(folder)


def threads_of(process: WatchedProcess) -> list[WatchedThread]:
    """The threads in the order of their first slow calls: which of two takes the first place in the file may differ."""
    return sorted(process.threads, key=lambda one: [slow.begin_ns for slow in one.slow_calls] or [one.started_ns])


def thread_names(process: WatchedProcess) -> dict[int, int]:
    """The number of each thread by its id, which another process has not."""
    return {thread.id: number for number, thread in enumerate(threads_of(process))}


def calls_of(process: WatchedProcess) -> list[list[SlowDriverCall]]:
    """The slow calls of each thread, without its id and their stacks."""
    return [[slow.changed(thread=0, stack=0) for slow in thread.slow_calls] for thread in threads_of(process)]


def in_flight(process: WatchedProcess) -> list[list[DriverCall]]:
    """The calls in flight of each thread, without its id."""
    return [[call.changed(thread=0) for call in thread.in_flight] for thread in threads_of(process)]


def counts_of(process: WatchedProcess) -> list[Mapping[str, tuple[list[int], int, int]]]:
    """The calls of each thread by function: in each bucket, slow, and failed."""
    return [
        {name: (one.total.counts.tolist(), one.slow, one.failed) for name, one in thread.figures.items()}
        for thread in threads_of(process)
    ]


def records_of(watched: Watched) -> list[ActivityRecord]:
    """The records of kinds that are still collected, with the numbers of threads in place of their ids."""
    names = thread_names(watched.process)
    found = [one for one in watched.records if one.kind in COLLECTED]
    return [replace(one, thread=names.get(one.thread, one.thread)) for one in found]


def explained(watched: Watched) -> list[ExplainedCall]:
    """The slow calls with causes and evidence, with the numbers of threads in place of their ids, without stacks.

    The call that holds a stream is left out: the recordings have no log of all calls, in which it is.
    """
    names = thread_names(watched.process)

    def numbered(one: CallAlongside) -> CallAlongside:
        return one.changed(thread=names[one.thread], thread_name="")

    found = []
    for call in findings_of(watched).slow_calls:
        is_held = call.cause is WaitCause.HELD_STREAM
        evidence = call.evidence.changed(calls=() if is_held else tuple(map(numbered, call.evidence.calls)))
        certainty = Certainty.BESIDE if is_held else call.certainty
        call = call.changed(thread=names[call.thread], thread_name="", evidence=evidence, stack=None)
        found.append(call.changed(certainty=certainty))
    return found
