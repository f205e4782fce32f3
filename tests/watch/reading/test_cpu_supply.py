"""CPUs that a process may use and wants, by folders as the kernel has them in /proc and for control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.watch.reading.cpu_supply import PAUSE_NS, CpuSupply, CpuSupplyReader

SECOND = 1_000_000_000
ALL = (0, 1000 * SECOND)


class Machine:
    """Files of a process with two threads."""

    def __init__(self, folder: Path, cgroup: str) -> None:
        self.folder = folder
        self.main = folder / "proc" / "7" / "task" / "7"
        for number in (7, 8):
            (self.main.parent / str(number)).mkdir(parents=True)
        self.write("proc/7/task/7/status", "Name:\tprogram\nCpus_allowed:\tff,00000003\nCpus_allowed_list:\t0-1\n")
        self.write("proc/7/task/7/cgroup", cgroup)
        self.times(0, 0)
        self.stat(0)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def times(self, first_s: float, second_s: float) -> None:
        """How long each thread has run, and half of that was ready."""
        for number, seconds in ((7, first_s), (8, second_s)):
            ns = round(seconds * SECOND)
            self.write(f"proc/7/task/{number}/schedstat", f"{ns - ns // 3} {ns // 3} 1\n")

    def stat(self, stolen: int, cpus: str = "100 0 50 850 0 0 0") -> None:
        self.write("stat", f"cpu  {cpus} {stolen} 0 0\ncpu0 1 2 3\n")

    def faults(self, memory: int, disk: int) -> None:
        self.write("proc/7/stat", f"7 (a (odd) name) S 1 7 7 0 -1 4194304 {memory} 0 {disk} 0 3 4 0 0\n")

    def reader(self) -> CpuSupplyReader:
        return CpuSupplyReader(self.folder / "cgroup", self.folder / "stat")


def test_threads_that_want_more_cpus_than_they_may_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n")
    reader = machine.reader()
    reader.look(machine.main, 10 * SECOND)
    assert reader.supply(*ALL) is None
    machine.times(1.0, 0.5)
    # Too soon for another look.
    reader.look(machine.main, 10 * SECOND + PAUSE_NS // 2)
    assert reader.supply(*ALL) is None
    reader.look(machine.main, 11 * SECOND)
    assert reader.supply(*ALL) == CpuSupply(allowed=10, wanted=1.5)
    machine.times(2.0, 1.0)
    machine.stat(500, cpus="200 0 100 1200 0 0 0")
    reader.look(machine.main, 13 * SECOND)
    assert reader.supply(*ALL) == CpuSupply(allowed=10, wanted=1.0, stolen=0.5)


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/pod/job\n", {"pod/cpu.max": "200000 100000\n", "pod/job/cpu.max": "max 100000\n"}),
        ("0::/pod/job\n", {"pod/cpu.max": "400000 100000\n", "pod/job/cpu.max": "200000 100000\n"}),
        (
            "9:memory:/pod\n4:cpu,cpuacct:/pod\n",
            {"cpu,cpuacct/pod/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n"},
        ),
    ],
)
def test_the_smallest_quota_counts(tmp_path: Path, cgroup: str, files: dict[str, str]) -> None:
    machine = Machine(tmp_path, cgroup)
    folders = [tmp_path / "cgroup" / name for name in files]
    for name, text in files.items():
        machine.write(f"cgroup/{name}", text)
    reader = machine.reader()
    for periods in (0, 50):
        for path in folders:
            path.with_name("cpu.stat").write_text(f"usage_usec 1\nnr_periods {periods}\nnr_throttled {periods // 2}\n")
        reader.look(machine.main, (10 + periods) * SECOND)
    assert reader.supply(*ALL) == CpuSupply(allowed=10, wanted=0.0, quota=2.0, throttled=0.5)


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/../other\nnonsense\n")
    machine.write("other/cpu.max", "100000 100000\n")
    reader = machine.reader()
    reader.look(None, SECOND)
    for second in (10, 11):
        reader.look(machine.main, second * SECOND)
    assert reader.supply(*ALL) == CpuSupply(allowed=10, wanted=0.0)
    machine.write("proc/7/task/7/status", "Cpus_allowed:\n")
    gone = CpuSupplyReader(tmp_path / "none", tmp_path / "none")
    for second in (10, 11):
        gone.look(machine.main, second * SECOND)
        gone.look(tmp_path / "none" / "task" / "1", (second + 5) * SECOND)
    assert gone.supply(*ALL) is None


def test_page_faults_are_counted_from_the_first_look_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n")
    reader = machine.reader()
    machine.faults(5000, 40)
    reader.look(machine.main, 10 * SECOND)
    machine.faults(9000, 140)
    reader.look(machine.main, 12 * SECOND)
    found = reader.supply(*ALL)
    assert found is not None
    assert (found.page_faults, found.disk_faults) == (2050.0, 50.0)
    # Without the file nothing is counted, and afterwards nothing twice.
    machine.write("proc/7/stat", "7 (short) S 1\n")
    reader.look(machine.main, 13 * SECOND)
    machine.faults(9100, 140)
    reader.look(machine.main, 14 * SECOND)
    found = reader.supply(*ALL)
    assert found is not None
    assert (found.page_faults, found.disk_faults) == (1050.0, 25.0)


def test_the_start_up_does_not_count_in_the_steady_state(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n")
    reader = machine.reader()
    for second, disk in ((10, 0), (11, 900), (12, 1000), (13, 1000), (14, 1002)):
        machine.faults(0, disk)
        machine.times(1.5 * min(second, 12), 0)
        reader.look(machine.main, second * SECOND)
    found = reader.supply(12 * SECOND, 14 * SECOND)
    assert found == CpuSupply(allowed=10, wanted=0.0, page_faults=1.0, disk_faults=1.0)
    # What began in the start-up does not count, unless there is nothing else: the last second then.
    assert reader.supply(11 * SECOND + 1, 14 * SECOND) == found
    assert reader.supply(14 * SECOND - 1, 14 * SECOND) == found.changed(page_faults=2.0, disk_faults=2.0)
