"""What limits the kernels of a GPU, by NVML's counters of the whole GPU, and by what this model of GPU reaches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from stallprobes.files.codec import Document, Rounded, Share, Unsigned, about

# File with the values of the counters that a copy, products and loops of arithmetic reach, by model of GPU, as
# tests/benchmarks/bench_kernel_limits.py measured them. Of two
# measurements of memory (81 and 88 %), the lower is there.
FILE = Path(__file__).with_name("gpu_reach.json")
# Names of the counters with which a unit of the GPU is busy: a share of the time, or of its bandwidth.
UNITS = ("dram", "tensor", "fp32", "fp64", "fp16", "integer")
# Names of all counters that NVML gives as percentages. GRAPHICS is the time in which any kernel runs.
GRAPHICS = "graphics"
PERCENTAGES = (GRAPHICS, "sm_active", "occupancy", *UNITS)
# Names of the counters for the traffic over PCIe (MiB/s).
PCIE = ("pcie_to_gpu", "pcie_from_gpu")
# Smallest number of samples of the counters that suffices for a limit.
_LEAST_SAMPLES = 3
# Smallest share of the time in which kernels run that suffices for a limit.
_LEAST_GRAPHICS = 0.05
# Smallest use of a unit that makes it the limit, as a share of the largest use that kernels reach on this model of GPU.
_BUSY = 0.6
# The same for a model whose largest use is not known, as a share of the peak. Kernels hardly reach more on any GPU.
_BUSY_OF_PEAK = 0.75
# Largest use of every unit, as a share of what is reached, at which kernels wait for themselves (latency).
_IDLE = 0.4
# Largest share of the SMs, while kernels run, that is reported as too few blocks.
_FEW_SMS = 0.5
# Smallest share of the SMs, and largest share of their threads (occupancy), with which kernels wait for themselves.
_MOST_SMS, _FEW_THREADS = 0.8, 0.25


class Limit(StrEnum):
    """What limits kernels. The values are those of JSON.

    FEW_BLOCKS: kernels use few of the SMs, or run too briefly to fill them. LATENCY: the SMs are in use, but few
    threads wait for memory or for results, and no unit is busy. SEVERAL: two units are busy. SHARED: other processes
    use the GPU, so that its counters are not those of the kernels. UNKNOWN: none of these.
    """

    DRAM = "dram"
    TENSOR = "tensor"
    FP32 = "fp32"
    FP64 = "fp64"
    FP16 = "fp16"
    INTEGER = "integer"
    PCIE = "pcie"
    FEW_BLOCKS = "few-blocks"
    LATENCY = "latency"
    SEVERAL = "several"
    SHARED = "shared"
    UNKNOWN = "unknown"


_MEBIBYTES = Annotated[float, Meta(ge=0), Rounded(1)]


class KernelLimit(Document, kw_only=True):
    """What limits the kernels of a sequence's GPU, with the means of NVML's counters of that GPU.

    All but ``graphics`` and the traffic are of the time in which kernels run.
    """

    limit: Limit
    samples: Annotated[Unsigned, about("Number of samples, each of a second.")]
    graphics: Annotated[Share, about("Share of the time in which a kernel runs.")]
    sm_active: Annotated[Share, about("Share of the SMs with work.")]
    occupancy: Annotated[Share, about("Threads, by the number that the SMs have room for.")]
    dram: Annotated[Share, about("Use of the bandwidth of the GPU's memory.")]
    tensor: Annotated[Share, about("Use of the tensor cores.")]
    fp32: Annotated[Share, about("Use of the units for 32-bit floating-point numbers.")]
    fp64: Annotated[Share, about("Use of those for 64-bit floating-point numbers.")]
    fp16: Annotated[Share, about("Use of those for 16-bit floating-point numbers.")]
    integer: Annotated[Share, about("Use of those for integers.")]
    pcie_to_gpu: Annotated[_MEBIBYTES, about("Traffic over PCIe to the GPU in MiB/s, in all of the time.")]
    pcie_from_gpu: Annotated[_MEBIBYTES, about("Traffic over PCIe from the GPU in MiB/s, in all of the time.")]

    @property
    def busy(self) -> tuple[str, ...]:
        """The units in use, the most used one first."""
        return tuple(sorted(UNITS, key=lambda unit: -getattr(self, unit)))


@cache
def _measured() -> Mapping[str, Any]:
    measured: Mapping[str, Any] = json.loads(FILE.read_bytes())["models"]
    return measured


def reached_by(model: str) -> Mapping[str, float]:
    """The largest use of each unit (0 to 1), and the most traffic over PCIe (MiB/s), of a model of GPU; none if it was
    not measured."""
    return next((reached for name, reached in _measured().items() if name in model), {})


def limit_of(
    samples: Iterable[Mapping[str, float | None]], model: str, *, copies: float = 0.0, is_alone: bool = True
) -> KernelLimit | None:
    """What limits the kernels of a GPU of some model, by samples of its counters (percentages, and MiB/s).

    ``copies`` is the part (0 to 1) of the GPU's work that copies take. None without enough samples or kernels.
    """
    wanted = (*PERCENTAGES, *PCIE)
    known = [sample for sample in samples if all(sample.get(name) is not None for name in wanted)]
    if len(known) < _LEAST_SAMPLES:
        return None
    means = {name: sum(sample[name] or 0.0 for sample in known) / len(known) for name in wanted}
    graphics = means[GRAPHICS] / 100
    reached = reached_by(model)
    traffic = {name: means[name] for name in PCIE}
    is_copying = any(means[name] >= _BUSY * reached[name] for name in PCIE if name in reached) and copies > 1 / 2
    if graphics < _LEAST_GRAPHICS and not is_copying:
        return None
    shares = {
        name: min(means[name] / means[GRAPHICS], 1.0) if graphics >= _LEAST_GRAPHICS else 0.0
        for name in PERCENTAGES
        if name != GRAPHICS
    }
    limit = _limit(shares, reached) if is_alone else Limit.SHARED
    if is_alone and is_copying:
        limit = Limit.PCIE
    return KernelLimit(limit=limit, samples=len(known), graphics=min(graphics, 1.0), **shares, **traffic)


def _limit(shares: Mapping[str, float], reached: Mapping[str, float]) -> Limit:
    uses = {unit: shares[unit] / reached.get(unit, _BUSY_OF_PEAK / _BUSY) for unit in UNITS}
    first, second = sorted(UNITS, key=lambda unit: -uses[unit])[:2]
    if uses[second] >= _BUSY:
        return Limit.SEVERAL
    if uses[first] >= _BUSY:
        return Limit(first)
    if uses[first] > _IDLE:
        return Limit.UNKNOWN
    if shares["sm_active"] <= _FEW_SMS:
        return Limit.FEW_BLOCKS
    if shares["sm_active"] >= _MOST_SMS and shares["occupancy"] <= _FEW_THREADS:
        return Limit.LATENCY
    return Limit.UNKNOWN
