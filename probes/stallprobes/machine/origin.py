"""Origin of a measurement: what was measured, when, and on which machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.files.codec import Document, Text, about
from stallprobes.files.tables import Record

# Name of a backend in results.
Backend = Literal["cuda", "simulated", "host"]
# Name of a backend in results, by its name in the engine.
BACKENDS: Mapping[str, Backend] = {"cuda": "cuda", "sim": "simulated", "host": "host"}
Fingerprint = Annotated[
    Mapping[str, Any], about("GPU, driver, settings and host. The key unknown gives the reason for each null.")
]


class Origin(Document, kw_only=True):
    """What was measured, when, and on which machine."""

    backend: Backend
    """simulated: a model, no GPU. host: probes without CUDA."""
    profile: Text | None = None
    """Profile of the simulated GPU; null on a real GPU."""
    started_at: Annotated[Text, Meta(extra_json_schema={"format": "date-time"})]
    """ISO 8601 with UTC offset; of a merged check, the earliest."""
    timeline: bool = False
    """Whether the timeline was on, which adds to each call."""
    interrupted: bool = False
    """Whether it was stopped early; it then has what was measured."""
    fingerprint: Fingerprint
    """In a merged check, the values common to all hosts; the others are null."""

    @property
    def simulated(self) -> bool:
        """True if a simulated GPU was measured."""
        return self.backend == "simulated"

    @property
    def machine(self) -> str:
        """The GPU, or what was measured in its place, for one line: ``NVIDIA H200``, ``SIMULATED h200``."""
        if self.simulated:
            return f"SIMULATED {self.profile}"
        return "host" if self.backend == "host" else str(self.fingerprint.get("gpu") or "unknown GPU")

    @property
    def origin_columns(self) -> Record:
        """Columns of what was measured and when, in the records of a result."""
        gpu = self.fingerprint.get("gpu")
        return {
            "gpu": None if gpu is None else str(gpu),
            "driver": None if (driver := self.fingerprint.get("driver")) is None else str(driver),
            "simulated": self.simulated,
            "started_at": self.started_at,
        }
