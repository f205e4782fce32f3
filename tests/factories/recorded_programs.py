"""The example programs as an H200 recorded them: what they wrote, and the truth about them.

``tests/data/watch`` holds the folders that ``watch --print-env`` and the programs filled, each with its fingerprint.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from factories import program_truths as truths
from factories.program_truths import Truth
from factories.watched_programs import Watched, read_watched

RECORDED = Path(__file__).parents[1] / "data" / "watch"
PROGRAMS: dict[str, Truth] = {
    "read_back": truths.gpu_work,
    "secondary_context": truths.secondary_context,
    "peer_copy": truths.peer_copy,
    "pageable_copies": truths.pageable_copies,
    "default_stream_gate": truths.gate,
    "training_item": truths.training,
}


def recorded(name: str, folder: Path) -> Watched:
    """What the program ``name`` wrote, extracted to ``folder``."""
    with tarfile.open(RECORDED / f"{name}.tgz") as archive:
        # Python 3.11.2 knows no filter, and 3.12 warns where none is chosen.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return read_watched(folder)
