"""Format of recordings: its name and version, the keys of its lines, and limits that a reader and the writer share."""

from __future__ import annotations

import json
from pathlib import Path

from stallprobes.errors import RecordingError

FORMAT = "stallscope.recording"
VERSION = 2

# Keys of the kinds of lines.
PROBE_SET, BASELINES, OBSERVATION, TRACE = "bench", "quiet", "f", "trace"

LONGEST_HEAD = 1 << 16
# A longer line is damage: an observation takes some kilobytes, the baselines of sixteen probes some hundred.
LONGEST_LINE = 1 << 22
LONGEST_TEXT = 4000
# Items of a list, such as the processes on a GPU.
MOST_ITEMS = 1000


def check_head(path: Path, head: bytes) -> None:
    """Raise RecordingError unless ``head``, the first line of ``path``, is that of a readable recording."""
    try:
        known = json.loads(head)
        version = known["version"] if known["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if type(version) is not int or version < 1:
        raise RecordingError(f"{path} is not a recording of stallscope")
    if version != VERSION:
        remedy = "upgrade it" if version > VERSION else "record again"
        raise RecordingError(
            f"{path} has version {str(version)[:20]} of the format; this stallscope reads version {VERSION}: {remedy}"
        )
