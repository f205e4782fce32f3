"""What the units of a GPU reach by NVML's GPM counters: by the calibration of this GPU, else by one of its model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple
from uuid import UUID

from msgspec import Meta

from stallprobes.errors import MalformedJson
from stallprobes.files import codec, user_state
from stallprobes.files.codec import Document, Text

# Schema of a calibration, with the number of its version.
SCHEMA: Final = "stallscope.calibration/1"
# File with calibrations of models of GPUs by `stallscope calibrate`, the lower value of two GPUs; that of FP16 is by
# tests/benchmarks/bench_kernel_limits.py, since the load of a calibration reaches less (79 %).
FILE = Path(__file__).with_name("gpu_reach.json")
# Names of the counters with which a unit of the GPU is busy: a share of the time, or of its bandwidth.
UNITS = ("dram", "tensor", "fp32", "fp64", "fp16", "integer")
# Names of the counters for the traffic over PCIe (MiB/s).
PCIE = ("pcie_to_gpu", "pcie_from_gpu")
# Smallest use of a unit (share of its peak) that is a measure of what it reaches. If a kernel reaches less, the kernel
# is the reason, and not the unit: mma.sync, for example, keeps the tensor cores of some GPUs half idle.
LEAST_REACHED = 0.7
# Smallest traffic over PCIe (MiB/s) that is a measure of what it reaches: half of what one lane of PCIe 3.0 carries.
_LEAST_TRAFFIC = 470.0


class Basis(StrEnum):
    """What the use of a unit is compared with: this GPU's own calibration, that of its model, or the unit's peak."""

    CALIBRATION = "calibration"
    MODEL = "model"
    PEAK = "peak"


class Calibration(Document):
    """What the units of a GPU reach, as `stallscope calibrate` measures it and `watch` uses it."""

    schema: Literal["stallscope.calibration/1"]
    gpu: Text
    """Model of the GPU, as NVML names it."""
    uuid: Text
    """UUID of the GPU; empty for a model."""
    driver: Text
    """Version of the driver."""
    date: Text
    """Day of the measurement, as in 2026-11-30."""
    reached: dict[str, Annotated[float, Meta(ge=0, le=1e9)]]
    """Largest use of each unit as a share of its peak, and most traffic over PCIe (MiB/s), by counter."""

    @property
    def measures(self) -> Mapping[str, float]:
        """The values that are a measure of what a unit reaches, by the names of the counters."""
        least = dict.fromkeys(UNITS, LEAST_REACHED) | dict.fromkeys(PCIE, _LEAST_TRAFFIC)
        return {name: self.reached[name] for name in least if self.reached.get(name, 0.0) >= least[name]}


class Known(NamedTuple):
    """A largest use or traffic that is known, and from where."""

    value: float
    basis: Basis


def store(calibration: Calibration) -> Path | None:
    """Keep the calibration of a GPU in the user's state folder. Returns the file; None if it cannot be written."""
    text = json.dumps(codec.plain(calibration), indent=2) + "\n"
    return user_state.write(_name(calibration.uuid), text)


def load(uuid: str, driver: str) -> Calibration | None:
    """The kept calibration of the GPU with this UUID, made with this version of the driver; None without one.

    Another driver may count otherwise.
    """
    with suppress(MalformedJson, ValueError):
        kept = codec.decoded(user_state.read(_name(uuid)).encode(), Calibration)
        if _plain(kept.uuid) == _plain(uuid) and kept.driver == driver:
            return kept
    return None


@cache
def of_model(model: str) -> Calibration | None:
    """The calibration of a model of GPU that the package has; None if it has none."""
    return next((each for each in codec.decoded(FILE.read_bytes(), list[Calibration]) if each.gpu in model), None)


def known(uuid: str, model: str, driver: str) -> Mapping[str, Known]:
    """What is known of each unit of a GPU: by its own calibration, else by its model's, also where that reached more of
    the peak. PCIe is that of this machine."""
    found: dict[str, Known] = {}
    for basis, calibration in ((Basis.MODEL, of_model(model)), (Basis.CALIBRATION, load(uuid, driver))):
        for name, value in {} if calibration is None else calibration.measures.items():
            if name in PCIE or name not in found or value >= found[name].value:
                found[name] = Known(value, basis)
    return found


def _plain(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def _name(uuid: str) -> str:
    """Name of the file for a GPU. Raises ValueError for what is no UUID, since the name is part of a path."""
    return f"calibration-{UUID(_plain(uuid))}.json"
