"""Damaged files of watched processes, from the reading to every output: refused in a sentence, or read with limits.

Opening a recording reads all of its moment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.damaged_watch_files import DamagedFile, use
from factories.recorded_programs import recorded
from stallprobes.watch.reading.map_reader import watch_files


@pytest.mark.parametrize(("name", "rounds"), [("default_stream_gate", 30), ("secondary_context", 8)])
def test_a_damaged_file_is_refused_in_a_sentence_or_gives_every_output(name: str, rounds: int, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    recorded(name, folder)
    (path,) = watch_files(folder)
    damaged, refused = DamagedFile(path, 13), 0
    assert use(folder, tmp_path) == []
    for _ in range(rounds):
        with damaged.changed():
            problems = use(folder, tmp_path)
        assert all(problem.endswith(".") for problem in problems)
        refused += bool(problems)
    assert 0 < refused < rounds
    assert use(folder, tmp_path) == []
