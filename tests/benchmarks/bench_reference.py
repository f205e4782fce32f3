"""How often a machine that is like the reference is called unusual: each check against a reference of the others.

python tests/benchmarks/bench_reference.py [CHECK CHECK CHECK...]

By default the recorded checks of H200s. Prints the cells that are named, and exits 1 if they are more than 1 in 100.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[2] / "app"))

from stallprobes.matrix import check_file, reference_maker
from stallprobes.wording import reference_wording

RECORDED = Path(__file__).parents[1] / "gpu" / "recorded"
MOST = 0.01


def main(arguments: Sequence[str]) -> int:
    paths = [Path(argument) for argument in arguments] or sorted(RECORDED.glob("check-*.json.gz"))
    matrices = [check_file.load(path) for path in paths]
    named = compared = 0
    for number, matrix in enumerate(matrices):
        others = [other for place, other in enumerate(matrices) if place != number]
        found = reference_maker.make("others", others).unusual(matrix)
        cells = (*found.stalled_here, *found.stalled_there)
        named, compared = named + len(cells), compared + found.compared
        print(f"{paths[number].name}: {len(cells)} of {found.compared} cells, {found.disagreed} left out")
        for cell in cells:
            print(f"  {cell.row} beside {cell.column}: {reference_wording.unusual_figures(cell)}")
    print(f"{named} of {compared} cells are called unusual")
    return int(named > MOST * compared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
