"""CPUs that a watched process may use, and how many its threads and child processes want: why a host waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from stallprobes.files.codec import Document, Ratio, Rounded, Share, String, Unsigned
from stallprobes.watch.reading.proc_files import content, stat_fields
from stallprobes.watch.reading.timed_counts import TimedCounts

# A look at a process reads the CPU times of its first threads. PAUSE_NS: shortest time (ns) between two looks.
# _MOST_THREADS: largest number of threads of a look. 256 threads take 2 ms.
PAUSE_NS, _MOST_THREADS = 1_000_000_000, 256
# Mount point of the control groups (cgroups). In version 1, each controller has a folder there.
_CGROUPS = Path("/sys/fs/cgroup")
# Places of the numbers of page faults in /proc/PID/stat, behind the program's name (minflt and majflt in proc(5)).
_MINOR, _MAJOR = 7, 9
_Cpus = Annotated[float, Meta(ge=0), Rounded(1)]


class CpuSupply(Document, kw_only=True):
    """CPUs that a process may use and wants, in its steady state."""

    allowed: Unsigned
    """CPUs that its main thread may use."""
    wanted: _Cpus
    """Mean number of its threads, of the first 256, that ran or were ready to run."""
    quota: _Cpus | None = None
    """CPUs that its control group may use at once; null without a quota."""
    throttled: Share = 0.0
    """Share of the quota's periods in which it was used up."""
    stolen: Share = 0.0
    """Share of the time of the machine's CPUs that a hypervisor took."""
    page_faults: Ratio = 0.0
    """Page faults of the process a second."""
    disk_faults: Ratio = 0.0
    """Those that read from a disk, or have pages move from the GPU."""


class Workers(Document, kw_only=True):
    """Child processes of one name that a process has started, and theirs, or its threads of one name."""

    name: String
    most: Unsigned
    """The largest number of them at once."""
    busy: Share
    """Share of the time in which the busiest one had a CPU or was ready to run."""


class CpuSupplyReader:
    """Looks at a process once a second."""

    def __init__(self, cgroups: Path = _CGROUPS, stat: Path = Path("/proc/stat")) -> None:
        self._cgroups, self._stat = cgroups, stat
        self._times: dict[str, int] = {}
        self._last_ns = 0
        # What the kernel has counted so far, and in the times between the looks.
        self._before: dict[str, int] = {}
        self._counts = TimedCounts()
        self._allowed = 0
        self._quota: float | None = None

    def look(self, thread: Path | None, now_ns: int) -> None:
        """Look at the process whose main thread has this folder in /proc, unless it was just looked at."""
        if thread is None or now_ns - self._last_ns < PAUSE_NS:
            return
        before, self._times = self._times, dict(_times(thread.parent))
        self._quota, folder = min(self._quotas(thread), default=(None, None), key=lambda item: item[0] or 0.0)
        counts = {**_periods(folder), **_stolen(self._stat), **_faults(thread.parents[1])}
        if before:
            wanted = sum(max(ns - before[name], 0) for name, ns in self._times.items() if name in before)
            grown = {name: max(count - self._before.get(name, count), 0) for name, count in counts.items()}
            self._counts.add(self._last_ns, now_ns, {"wanted": wanted, **grown})
        # A file that cannot be read for once counts nothing twice.
        self._before |= {name: max(count, self._before.get(name, 0)) for name, count in counts.items()}
        self._last_ns, self._allowed = now_ns, _allowed(thread) or self._allowed

    def supply(self, begin_ns: int, end_ns: int) -> CpuSupply | None:
        """What was seen between two times (ns, CLOCK_MONOTONIC); None before the second look."""
        passed_ns, counts = self._counts.between(begin_ns, end_ns)
        if not passed_ns or not self._allowed:
            return None
        return CpuSupply(
            allowed=self._allowed,
            wanted=counts["wanted"] / passed_ns,
            quota=self._quota,
            throttled=min(counts["throttled"] / max(counts["periods"], 1), 1.0),
            stolen=min(counts["stolen"] / max(counts["whole"], 1), 1.0),
            page_faults=(counts["minor"] + counts["major"]) * 1e9 / passed_ns,
            disk_faults=counts["major"] * 1e9 / passed_ns,
        )

    def _quotas(self, thread: Path) -> Iterator[tuple[float, Path]]:
        """The CPUs that each control group of a thread may use, with its folder, of those that have a quota."""
        for line in content(thread / "cgroup").splitlines():
            controllers, _, path = line.decode("utf-8", "replace").partition(":")[2].partition(":")
            parts = [part for part in path.split("/") if part]
            if ".." in parts or (controllers and "cpu" not in controllers.split(",")):
                continue
            base = self._cgroups / controllers if controllers else self._cgroups
            for count in range(len(parts), -1, -1):
                folder = base.joinpath(*parts[:count])
                words = content(folder / "cpu.max").split() if not controllers else [
                    *content(folder / "cpu.cfs_quota_us").split(), *content(folder / "cpu.cfs_period_us").split(),
                ]  # fmt: skip
                if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
                    yield int(words[0]) / int(words[1]), folder


def times_of(folder: Path | None) -> tuple[int, int] | None:
    """Time (ns) ready to run without a CPU, and on one; None where that is not known."""
    fields = [] if folder is None else content(folder / "schedstat").split()
    return (int(fields[1]), int(fields[0])) if len(fields) > 1 and fields[0].isdigit() and fields[1].isdigit() else None


def _times(threads: Path) -> Iterator[tuple[str, int]]:
    """How long (ns) each of the first threads in a folder has run or was ready to run."""
    try:
        for folder in islice(threads.iterdir(), _MOST_THREADS):
            times = times_of(folder)
            if times is not None:
                yield folder.name, sum(times)
    except OSError:
        return


def _allowed(thread: Path) -> int:
    """The number of CPUs that a thread may use; 0 where it is not known."""
    words = content(thread / "status").split()
    mask = words[words.index(b"Cpus_allowed:") + 1] if b"Cpus_allowed:" in words[:-1] else b"0"
    try:
        return int(mask.replace(b",", b""), 16).bit_count()
    except ValueError:
        return 0


def _periods(folder: Path | None) -> dict[str, int]:
    """The periods of a control group's quota, and those in which it was used up."""
    words = [] if folder is None else content(folder / "cpu.stat").split()
    counts = dict(zip(words[::2], words[1::2], strict=False))
    return {"periods": int(counts.get(b"nr_periods", 0)), "throttled": int(counts.get(b"nr_throttled", 0))}


def _stolen(stat: Path) -> dict[str, int]:
    """The time of all CPUs, and the part of it that a hypervisor took, in ticks."""
    # Of the ten times after "cpu", the last two are parts of the first two.
    times = [int(word) for word in content(stat).split()[1:9] if word.isdigit()]
    return {"whole": sum(times), "stolen": times[7] if len(times) == 8 else 0}


def _faults(process: Path) -> dict[str, int]:
    """Page faults of a process so far: those without and those with a read from a disk; none that are not known."""
    fields = stat_fields(process)
    return {"minor": int(fields[_MINOR]), "major": int(fields[_MAJOR])} if len(fields) > _MAJOR else {}
