"""Analysis of all processes of one source, read again and again while they run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.traces.trace import CounterTrack
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.attribution.other_processes import OtherWork
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.gpu_clocks import GpuClocks
from stallprobes.watch.gpu_counters import GpuCounters
from stallprobes.watch.gpu_sharers import LEAST_SWITCHES, GpuSharers
from stallprobes.watch.lines.computing import with_computing, with_libraries
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.process_inspector import ProcessInspector
from stallprobes.watch.rank_findings import RankFindings
from stallprobes.watch.ranks.book import RankBook
from stallprobes.watch.ranks.series import ProcessKey
from stallprobes.watch.reading.call_stack import StackFrame
from stallprobes.watch.reading.code_samples import PERIOD_NS, CodeSamples
from stallprobes.watch.reading.compilers import DeviceCompiler
from stallprobes.watch.reading.cpu_supply import CpuSupplyReader
from stallprobes.watch.reading.folder import ProcessLife, life_of
from stallprobes.watch.reading.kernel_names import present_parser
from stallprobes.watch.reading.library_versions import LibraryVersions
from stallprobes.watch.reading.map_reader import CallPosition, IncompleteFile
from stallprobes.watch.reading.numa_nodes import NumaNodes
from stallprobes.watch.reading.parser_messages import ParserRequest
from stallprobes.watch.reading.preemptions import Preemptions
from stallprobes.watch.reading.process import CallBatch, RecordBatch, WatchedProcess, WatchedThread
from stallprobes.watch.reading.process_rank import Rank, rank_of
from stallprobes.watch.reading.source import FolderSource, WatchSource
from stallprobes.watch.reading.stack_reader import StackReader
from stallprobes.watch.sentences import skipped_texts
from stallprobes.watch.settings import settings_that_cost
from stallprobes.watch.thread_samples import Sampler, ThreadSamples

# Largest share of a ring of records or calls that may fill up between two readings. This share limits the pause between
# the readings.
_MOST_FILLED = 0.4
# Number of records and calls of a process after which the next reading is due. Reason: a reading takes up to 500 bytes
# for each. A pause as a multiple of a reading's time alone would grow with each reading until a ring limits it. With
# half as many, a reading of a program that launches very often takes a quarter more time for each.
_MOST_ROWS = 1 << 17


ReadingListener = Callable[[WatchedProcess, RecordBatch, CallBatch, int], None]


@dataclass
class _ReadFile:
    """State of one file."""

    analysis: ProcessAnalysis
    inspector: ProcessInspector
    stacks: StackReader
    process: WatchedProcess | None = None
    position: int = 0
    samples: int = 0
    calls: CallPosition = field(default_factory=CallPosition)
    last_ns: int = 0
    room_s: float = math.inf
    ended: bool = False
    samples_of_threads: ThreadSamples = field(default_factory=ThreadSamples)
    cpus: CpuSupplyReader = field(default_factory=CpuSupplyReader)
    nodes: NumaNodes = field(default_factory=NumaNodes)
    code: CodeSamples = field(default_factory=CodeSamples)
    preemptions: Preemptions = field(default_factory=Preemptions)
    libraries: LibraryVersions = field(default_factory=LibraryVersions)
    environment: Mapping[str, str] = field(default_factory=dict)
    rank: Rank | None = None

    @property
    def key(self) -> ProcessKey:
        """The process, once it has been read."""
        assert self.process is not None
        return self.process.pid, self.process.image


class FolderAnalysis:
    """The analysis of the processes of one source.

    A path as ``source`` is that of a private folder; None has no process. ``known`` are the pairs that stall on this
    machine, by a saved check or a reference. ``listener`` gets each reading of a process, its new records and calls,
    and the time (CLOCK_MONOTONIC).
    """

    def __init__(
        self,
        source: WatchSource | Path | None,
        known: KnownStalls | None = None,
        listener: ReadingListener | None = None,
    ) -> None:
        self._source = FolderSource(source) if isinstance(source, Path) else source
        self._parser = present_parser()
        self._skipped_before = self._parser.skipped.get(ParserRequest.NAMES, 0)
        self._listener = listener
        self._known = known
        self._readings: dict[Path, _ReadFile] = {}
        self._problems: dict[Path, str] = {}
        self._sharers = GpuSharers()
        self._clocks = GpuClocks()
        self._counters = GpuCounters()
        self._sampler = Sampler()
        self._ranks = RankBook()
        self._rank_findings = RankFindings(self._ranks)

    @property
    def processes(self) -> tuple[WatchedProcess, ...]:
        """The last reading of each process."""
        return tuple(file.process for file in self._readings.values() if file.process is not None)

    @property
    def running(self) -> tuple[WatchedProcess, ...]:
        """The processes that had not ended at the last reading."""
        return tuple(file.process for file in self._readings.values() if file.process is not None and not file.ended)

    def analysis(self, key: ProcessKey) -> ProcessAnalysis | None:
        """The analysis of a process; None for one that is not known."""
        files = (file for file in self._readings.values() if file.process is not None and file.key == key)
        return next((file.analysis for file in files), None)

    @property
    def room_s(self) -> float:
        """Time (s) from now until a running process has _MOST_ROWS or has filled the share _MOST_FILLED of a ring, at
        the rate of its last reading."""
        now_ns = time.monotonic_ns()
        left = (file.room_s - (now_ns - file.last_ns) / 1e9 for file in self._readings.values() if not file.ended)
        return max(min(left, default=math.inf), 0.0)

    def poll(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Read what is new; ``progress`` is called with the share (0 to 1) of the files that are read.

        Raises WatchError if the files cannot be read, or are too many.
        """
        source = self._source
        if source is None:
            return
        paths = source.files()
        for number, path in enumerate(paths):
            progress(number / len(paths))
            reading = self._readings.get(path)
            if reading is None:
                inspector = ProcessInspector(source)
                reading = self._readings[path] = _ReadFile(
                    ProcessAnalysis(self._known), inspector, source.stack_reader(path)
                )
                reading.analysis.others = partial(self._kernels_beside, reading)
                reading.analysis.rates_beside = partial(self._rates_beside, reading)
            if reading.ended:
                continue
            try:
                self._read(source, path, reading)
            except IncompleteFile:
                continue
            except WatchError as error:
                self._problems[path] = str(error)
            else:
                self._problems.pop(path, None)
        self._ranks.update()
        running = [file for file in self._readings.values() if not file.ended]
        self._sampler.follow([file.samples_of_threads for file in running])
        shared = [file.process for file in running if file.analysis.switches >= LEAST_SWITCHES]
        gpus = {
            file.process.gpus[device]
            for file in running
            for device in file.analysis.divider.devices
            if file.process is not None and device < len(file.process.gpus)
        }
        self._clocks.look(gpus)
        self._counters.look(gpus)
        self._sharers.look([process.pid for process in shared if process is not None], time.monotonic_ns())

    def counters(self, begin_ns: int, end_ns: int) -> tuple[CounterTrack, ...]:
        """NVML's counters of the processes' GPUs in a span (ns, CLOCK_MONOTONIC)."""
        return self._counters.tracks(begin_ns, end_ns)

    def finish_looking(self, seconds: float) -> None:
        """Wait, at most so long, for what is being read of the processes from outside; the next poll has it."""
        due = time.monotonic() + seconds
        for reading in self._readings.values():
            reading.inspector.wait(max(due - time.monotonic(), 0.0))

    def findings(self) -> WatchFindings:
        """The findings by all readings so far."""
        findings = [_findings(file, file.process) for file in self._readings.values() if file.process is not None]
        began_at_ns = min((process.started.realtime_ns for process in self.processes), default=0)
        processes = tuple(map(self._clocks.noted, self._sharers.named(findings)))
        gpus = self._clocks.gpus()
        processes = self._with_ranks(self._counters.noted(processes, gpus))
        found = watch_findings(processes, began_at_ns, (*self._problems.values(), *self._skipped()))
        return found.changed(gpus=gpus)

    def _skipped(self) -> Iterable[str]:
        """Sentences about names and files of the processes that exceeded the limits of reading."""
        names = self._parser.skipped.get(ParserRequest.NAMES, 0) - self._skipped_before
        files = {file for reading in self._readings.values() for file in reading.stacks.skipped_files}
        return skipped_texts(names, len(files))

    def _with_ranks(self, processes: tuple[ProcessFindings, ...]) -> tuple[ProcessFindings, ...]:
        """``processes`` with their communication."""
        files = self._readings.values()
        begins = {
            file.key: file.analysis.divider.steady_ns or file.process.started.monotonic_ns
            for file in files
            if file.process is not None
        }
        ranks = {file.key: file.rank for file in files if file.process is not None and file.rank is not None}
        made = self._rank_findings.of(processes, ranks, begins)
        return tuple(
            each.changed(rank=ranks.get((each.pid, each.image))) if each.standstill and each.rank is None else each
            for each in made
        )

    def _kernels_beside(self, reading: _ReadFile) -> Iterable[OtherWork]:
        """The kernels of the other processes."""
        ours = () if reading.process is None else reading.process.gpus
        return [
            other.analysis.kernels().numbered_as(other.process.gpus, ours)
            for other in self._readings.values()
            if other is not reading and other.process is not None
        ]

    def _rates_beside(self, reading: _ReadFile) -> list[float]:
        """The calls and operations a second of each other process that runs."""
        files = self._readings.values()
        return [other.analysis.divider.rate for other in files if other is not reading and not other.ended]

    def _read(self, source: WatchSource, path: Path, reading: _ReadFile) -> None:
        with source.open(path) as file:
            before = reading.process or file.read()
            # Before the reading that counts: what it wrote until its end is then read.
            place = source.process(before.pid)
            ended = place is None or life_of(before, place) is not ProcessLife.RUNNING
            if reading.process is None and not ended:
                reading.environment = source.environment(before.pid)
                reading.rank = rank_of(reading.environment)
            process = file.read(before)
            records = file.records(reading.position)
            records = replace(records, rows=process.windows.cut(records.rows))
            # Before the calls: those that finished before a sample was taken are among these then.
            samples = file.samples(reading.samples)
            calls = file.calls(reading.calls, process)
            reading.stacks.read(file, process, samples)
            # Of Python code, frames are known.
            if not ended and not process.interpreter[1]:
                unknown, begun_ns = reading.code.look(_most_calls(source, process)), time.monotonic_ns()
                frames = reading.stacks.frames_at(file, unknown)
                reading.code.note(frames, place, (time.monotonic_ns() - begun_ns) / 1e9)
            elif ended:
                reading.code.note(reading.stacks.frames_at(file, reading.code.unknown))
        if ended:
            reading.inspector.look_back(process)
            reading.code.close()
            reading.preemptions.close()
        else:
            reading.preemptions.look(_most_calls(source, process))
        now_ns = time.monotonic_ns()
        if not ended:
            filled = max((len(records) + records.missed) / file.record_places, calls.filled)
            used = max(filled / _MOST_FILLED, (len(records) + len(calls)) / _MOST_ROWS)
            reading.room_s = (now_ns - reading.last_ns) / 1e9 / used if used else math.inf
            reading.last_ns = now_ns
            reading.samples_of_threads.look(process, source)
            reading.cpus.look(source.thread(process.pid, process.pid), now_ns)
            if (busiest := _busiest(process)) is not None:
                reading.nodes.look(busiest, source.thread(process.pid, busiest.id))
            reading.libraries.look(place, partial(source.names_in, process.pid), now_ns)
            reading.inspector.look(process, now_ns)
        process = reading.inspector.names.named(process, reading.stacks.stacks)
        last_ns = reading.last_ns = max(reading.last_ns, _last_sign(process)) if ended else now_ns
        reading.process, reading.position, reading.samples, reading.ended = process, records.next, samples.next, ended
        reading.analysis.feed(
            process,
            records,
            last_ns,
            reading.samples_of_threads.arrays(),
            reading.stacks.stacks,
            reading.inspector.reading(process),
            calls,
            ended,
            samples,
            reading.preemptions.times(),
        )
        collectives, names = reading.analysis.divider.take_collectives(), reading.analysis.kernel_names
        self._ranks.add(reading.key, process.started.monotonic_ns, collectives, names, ended)
        if self._listener is not None:
            self._listener(process, records, calls, now_ns)


def _findings(reading: _ReadFile, process: WatchedProcess) -> ProcessFindings:
    samples, busiest = reading.samples_of_threads, _busiest(process)
    findings = reading.analysis.findings()
    times = _steady_times(reading, process, *findings.sequences[:1])
    cpus = reading.cpus.supply(*times)
    settings = tuple(settings_that_cost(reading.environment, None if cpus is None else cpus.allowed, process.command))
    if busiest is not None:
        name = next((each.name for each in findings.threads if each.id == busiest.id), "")
        used = {sequence.device for sequence in findings.sequences}
        gpus = {number: uuid for number, uuid in enumerate(findings.gpus) if number in used}
        settings += tuple(reading.nodes.sentences(name or f"Thread {busiest.id}", busiest.id, gpus))
    findings = findings.changed(standstill=reading.inspector.standstill)
    sequences = tuple(_with_computing(reading, process, sequence) for sequence in findings.sequences)
    findings = findings.changed(
        sequences=sequences,
        cpus=cpus,
        settings=settings,
        libraries=dict(sorted(reading.libraries.found.items())),
        children=samples.children(*times),
        others=samples.others(*times),
    )
    # A process that was killed has not noted its end.
    return findings.changed(ended=True) if reading.ended and process.ended_ns is None else findings


def _most_calls(source: WatchSource, process: WatchedProcess) -> Iterator[tuple[int, int]]:
    """The threads of a process that run, those with most calls first, by their numbers there and here."""
    running = (thread for thread in process.threads if thread.ended_ns is None)
    for thread in sorted(running, key=lambda thread: -thread.calls):
        folder = source.thread(process.pid, thread.id)
        if folder is not None:
            yield thread.id, int(folder.name)


def _steady_times(reading: _ReadFile, process: WatchedProcess, *sequences: ProgramSequence) -> tuple[int, int]:
    """Begin and end (ns, CLOCK_MONOTONIC) of the steady state, or of the phase that a sequence is of."""
    origin_ns = process.started.monotonic_ns
    for phase in (each.phases[0] for each in sequences if each.phases):
        begin_ns, end_ns = phase.times[-1]
        return origin_ns + begin_ns, origin_ns + end_ns
    return reading.analysis.divider.steady_ns or origin_ns, reading.last_ns


def _with_computing(reading: _ReadFile, process: WatchedProcess, sequence: ProgramSequence) -> ProgramSequence:
    """A sequence with the lines at which its threads compute in the times that it is of."""
    begin_ns, end_ns = _steady_times(reading, process, sequence)
    shares: dict[StackFrame, float] = {}
    compilers: dict[DeviceCompiler, float] = {}
    for thread in sequence.threads:
        for place, share in reading.code.shares(thread, begin_ns, end_ns).items():
            shares[place] = shares.get(place, 0.0) + share
        for compiler, share in reading.code.compiling(thread, begin_ns, end_ns).items():
            compilers[compiler] = compilers.get(compiler, 0.0) + share
    sequence = with_libraries(sequence, compilers)
    return with_computing(sequence, shares, (end_ns - begin_ns) / 1e9, PERIOD_NS)


def _busiest(process: WatchedProcess) -> WatchedThread | None:
    """The thread that made most calls; None without any."""
    return max(process.threads, key=lambda thread: thread.calls, default=None)


def _last_sign(process: WatchedProcess) -> int:
    """Last known time at which an ended process ran."""
    times = [process.clocks.monotonic_ns, process.started.monotonic_ns]
    for thread in process.threads:
        times += [thread.started_ns, thread.ended_ns or 0]
        times += [call.begin_ns for call in thread.in_flight]
        times += [slow.end_ns for slow in thread.slow_calls]
    return max(times)
