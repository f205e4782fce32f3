"""Files of the C core: which ones include the header of which."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from stallprobes.native.sources import NATIVE


@pytest.mark.parametrize("folder", ["attach", "common", "core", "cupti", "inject"])
def test_files_include_headers_in_one_direction(folder: str) -> None:
    files = [*(NATIVE / folder).glob("*.[ch]")]
    included: dict[str, set[str]] = {path.stem: set() for path in files}
    for path in files:
        names = {Path(name).stem for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)}
        included[path.stem] |= names & included.keys() - {path.stem}
    # Raises CycleError, which names a circle.
    assert len([*TopologicalSorter(included).static_order()]) == len(included)
