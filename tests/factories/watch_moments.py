"""Moments of a watched program, made by hand: a training loop whose read-backs wait, beside a loader's copies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from factories.time_samples import Sampled, line_stack, sample_batch
from factories.watch_calls import (
    BASE_NS,
    D2H,
    LAUNCH,
    MAIN,
    OTHER,
    SYNC,
    at_ns,
    batch,
    call,
    call_batch,
    copy,
    kernel,
    pageable_copy,
    process,
    slow,
    slow_batch,
    thread,
)
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.live.live_view import LiveRows, WatchedProgram, WatchMoment
from stallprobes.watch.live.recorder import OutputLines, WatchRecorder
from stallprobes.watch.live.trace_history import TriggeringCall, WatchTraceHistory
from stallprobes.watch.reading.process import (
    NO_SAMPLES_OF_TIME,
    CallBatch,
    ClockPair,
    RecordBatch,
    SampleBatch,
    SlowDriverCall,
    WatchedProcess,
)

SECOND_US = 1_000_000
# Seconds since 1970 at the program's first call: 2023-11-14 22:13:20 UTC.
BEGUN_S = 1_700_000_000.0
PROGRAM = WatchedProgram("python train.py", ("python", "train.py"), pid=100)
PAGEABLE = MemoryKind.PAGEABLE
STACKS = {1: line_stack(31, "forward"), 2: line_stack(42)}


def step(number: int) -> SlowDriverCall:
    """The read-back of training step ``number``: five milliseconds behind a kernel, ten steps a second."""
    begin = number * 100_000
    return slow(D2H, begin + 1000, begin + 6000, correlation=2 * number + 2, stream=7, size=4, target=PAGEABLE)


def load(number: int) -> SlowDriverCall:
    """The loader's copy number ``number`` to pageable memory: 40 ms, two a second."""
    begin = number * 500_000 + 50_000
    return pageable_copy(begin, begin + 40_000, correlation=100_000 + number)


def training(seconds: int, *, ended: bool = False) -> tuple[WatchedProcess, RecordBatch]:
    """The program after ``seconds``, with the records of all its work; a synchronization is in flight."""
    steps, loads = [step(number) for number in range(10 * seconds)], [load(number) for number in range(2 * seconds)]
    now = seconds * SECOND_US
    main = thread(
        MAIN,
        steps,
        name="MainThread",
        fast_us={LAUNCH: [4 + number % 5 for number in range(200 * seconds)]},
        in_flight=() if ended else [call(SYNC, now - 12_500, stream=7, correlation=90_000)],
    )
    loader = thread(OTHER, loads, name="loader", started=20_000)
    records = []
    for number in range(10 * seconds):
        begin = number * 100_000
        records.append(kernel(begin + 500, begin + 5900, name=1, correlation=2 * number + 1))
        records.append(copy(begin + 5900, begin + 5990, correlation=2 * number + 2))
    made = process(main, loader, now=now, ended=now if ended else None)
    return made.changed(started=ClockPair(BASE_NS, round(BEGUN_S * 1e9))), batch(records)


def calls(seconds: int, watched: WatchedProcess) -> CallBatch:
    """The calls of ``training`` that its division needs: the slow ones, and a launch in each step."""
    launches = [
        slow(LAUNCH, 100_000 * number + 100, 100_000 * number + 150, correlation=2 * number + 1)
        for number in range(10 * seconds)
    ]
    return call_batch([*(one for each in watched.threads for one in each.slow_calls), *launches])


def samples(seconds: int) -> SampleBatch:
    """Samples of ``training``: of a step of 100 ms, 85 are host time at two lines, and the read-back takes 5."""
    made = []
    for number in range(10 * seconds):
        begin = number * 100_000
        made += [
            Sampled(begin - 94_000, begin + 100, 60_000, LAUNCH, between=True, stack=1),
            Sampled(begin + 150, begin + 1000, 30_000, D2H, between=True, stack=2),
            Sampled(begin + 1000, begin + 6000, 5_000, D2H, stack=2),
            Sampled(begin + 100, begin + 150, 5_000, LAUNCH, stack=1),
        ]
    return sample_batch(made)


def findings(seconds: int, *, ended: bool = False, sampled: bool = True) -> WatchFindings:
    """The findings about ``training``; ``sampled``: with samples of its time."""
    analysis = ProcessAnalysis()
    watched, records = training(seconds, ended=ended)
    analysis.feed(
        watched,
        records,
        at_ns(seconds * SECOND_US),
        stacks=STACKS,
        calls=calls(seconds, watched),
        ended=ended,
        samples=samples(seconds) if sampled else NO_SAMPLES_OF_TIME,
    )
    return watch_findings([analysis.findings()], round(BEGUN_S * 1e9))


def moments(seconds: int, exit_code: int | None = None) -> list[WatchMoment]:
    """A moment for each of the first ``seconds``; the program ends in the last one with ``exit_code``, if given."""
    rows, found = LiveRows(), []
    for second in range(1, seconds + 1):
        ended = exit_code is not None and second == seconds
        now_ns, known = at_ns(second * SECOND_US), findings(second, ended=ended)
        rows.use(known)
        program = WatchedProgram(PROGRAM.title, PROGRAM.words, PROGRAM.pid, exit_code if ended else None)
        shown = rows.rows([training(second, ended=ended)[0]], now_ns)
        found.append(WatchMoment(now_ns, BEGUN_S + second, program, known, shown))
    return found


def history(seconds: int) -> WatchTraceHistory:
    """The history of ``training`` for traces."""
    made = WatchTraceHistory()
    watched, records = training(seconds)
    made.feed(watched, records, slow_batch(watched), at_ns(seconds * SECOND_US))
    return made


def output(second: int) -> OutputLines:
    """What the program has written until a second."""
    return OutputLines(0, [f"step {number} loss {1 / (number + 1):.4f}" for number in range(10 * second)])


def record(path: Path, made: Sequence[WatchMoment], *, traces: bool = True) -> WatchRecorder:
    """Record moments of ``moments`` to ``path``."""
    kept = history(len(made))

    def trace_of(found: TriggeringCall) -> object:
        return kept.trace(found.begin_ns - 50_000_000, found.end_ns + 20_000_000, found)

    recorder = WatchRecorder(path, trace_of if traces else None)  # type: ignore[arg-type]
    for number, moment in enumerate(made, 1):
        recorder.put(moment, output(number))
    recorder.close()
    return recorder
