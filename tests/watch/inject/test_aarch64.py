"""The injected library as built for AArch64, in an emulator, where there is one with a cross compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.stand_in import StandIn
from stallprobes.native.layouts import watch_file as layout

COMPILER, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
LIBRARIES = "/usr/aarch64-linux-gnu"
# Calls, records, and processes of each program.
CASES = {
    ("threads", "4", "300"): (1200, 0, 1),
    ("short-threads", str(layout.SLOTS + 40), "3", "8"): (3 * (layout.SLOTS + 40), 0, 1),
    ("records", "400"): (405, 405, 1),
    ("copies",): (15, 6, 1),
    ("fork",): (5, 0, 2),
    ("close-descriptors",): (2, 0, 1),
}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-ins and the library for AArch64."""
    if COMPILER is None or EMULATOR is None or not Path(LIBRARIES).is_dir():
        pytest.skip("no cross compiler and emulator for AArch64")
    folder = tmp_path_factory.mktemp("aarch64")
    return StandIn.build(folder, compiler=COMPILER, runner=(EMULATOR, "-L", LIBRARIES), programs=("host",))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_program_for_aarch64_is_recorded(emulated: StandIn, tmp_path: Path, case: tuple[str, ...]) -> None:
    outcome = emulated.run(tmp_path / "out", *case)
    assert (outcome.returncode, outcome.errors) == (0, "")
    found = outcome.processes
    calls, records = sum(process.calls for process in found), sum(process.records for process in found)
    assert (calls, records, len(found)) == CASES[case]
    assert sum(process.lost_calls + process.lost_records for process in found) == 0
