"""The example programs as an H200 recorded them: the same causes as the truth about the programs has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.program_truths import require_right_causes
from factories.recorded_programs import PROGRAMS, RECORDED, recorded
from factories.watched_programs import findings_of
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.reading.call_stack import StackFrame


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_slow_time_of_a_recorded_program_has_its_right_causes(name: str, tmp_path: Path) -> None:
    require_right_causes(name, findings_of(recorded(name, tmp_path)), PROGRAMS[name])


def test_slow_calls_of_the_training_have_the_lines_that_make_them(tmp_path: Path) -> None:
    source = (Path(__file__).parents[1] / "programs" / "training.py").read_text().splitlines()
    places = [one for call in findings_of(recorded("training_item", tmp_path)).slow_calls if (one := place_of(call))]
    assert len(places) == 10
    assert {(Path(one.file).name, one.function) for one in places} == {
        ("training.py", "__init__"), ("training.py", "step"),
    }  # fmt: skip
    # Copies of the model and of the data, and what their first use loads.
    lines = [source[(one.line or 0) - 1] for one in places if one.function == "__init__"]
    assert all("cuda" in line for line in lines), lines


def place_of(call: ExplainedCall) -> StackFrame | None:
    """The program's line of Python that made a slow call; None for a call that has no such line."""
    return call.stack.place if call.stack is not None and call.stack.python else None


def test_every_recorded_program_has_a_fingerprint_and_a_truth() -> None:
    fingerprints = json.loads((RECORDED / "fingerprints.json").read_text())
    assert fingerprints.keys() == PROGRAMS.keys() == {path.stem for path in RECORDED.glob("*.tgz")}
    assert all(one.keys() == {"gpu", "driver", "cupti", "date", "command"} for one in fingerprints.values())
