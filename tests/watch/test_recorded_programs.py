"""The example programs as an H200 recorded them: the same causes as the truth about the programs has.

``tests/data/watch`` holds the folders that ``watch --print-env`` and the programs filled, each with its fingerprint.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from factories import program_truths as truths
from factories.program_truths import Truth, require_right_causes
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.map_reader import MapFile, watch_files

RECORDED = Path(__file__).parents[1] / "data" / "watch"
PROGRAMS: dict[str, Truth] = {
    "read_back": truths.gpu_work,
    "secondary_context": truths.secondary_context,
    "pageable_copies": truths.pageable_copies,
    "default_stream_gate": truths.gate,
    "training_item": truths.training,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_slow_time_of_a_recorded_program_has_its_right_causes(name: str, tmp_path: Path) -> None:
    with tarfile.open(RECORDED / f"{name}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    (path,) = watch_files(tmp_path)
    with MapFile(path) as file:
        process, records = file.read(), file.records()
    analysis = ProcessAnalysis()
    analysis.feed(process, records, process.ended_ns or process.clocks.monotonic_ns)
    require_right_causes(name, analysis.findings(), PROGRAMS[name])


def test_every_recorded_program_has_a_fingerprint_and_a_truth() -> None:
    fingerprints = json.loads((RECORDED / "fingerprints.json").read_text())
    assert fingerprints.keys() == PROGRAMS.keys() == {path.stem for path in RECORDED.glob("*.tgz")}
    assert all(one.keys() == {"gpu", "driver", "cupti", "date", "command"} for one in fingerprints.values())
