"""What limits the kernels of a GPU, by NVML's counters of the whole GPU, and by what this GPU reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import sqrt
from typing import Annotated, NamedTuple

from msgspec import Meta

from stallprobes.files.codec import Document, Rounded, Share, String, Unsigned
from stallprobes.latency.statistics import student_t_two_sided
from stallprobes.machine.gpu_reach import PCIE, UNITS, Basis, Known

# Names of all counters that NVML gives as percentages. GRAPHICS is the time in which any kernel runs.
GRAPHICS = "graphics"
PERCENTAGES = (GRAPHICS, "sm_active", "occupancy", *UNITS)
# Smallest number of samples with kernels that suffices for a limit, and that where kernels run for less than _LITTLE of
# the time. Reason: of 4000 simulated programs with so little work, 3 samples gave 4 wrong limits, 4 gave 2, and 6 none.
_LEAST_SAMPLES, _LEAST_OF_LITTLE, _LITTLE = 3, 6, 0.12
# Smallest share of the time in which kernels run that suffices for a limit. With less, the error of the counters
# themselves is more than 10 points of a use.
_LEAST_GRAPHICS = 0.005
# Largest error of a counter's mean, as a share of the time: counters of idle units read up to 0.05 %.
_COUNTER_ERROR = 0.0005
# Largest probability that a use which varies between samples is on the other side of a threshold.
_DOUBT = 0.01
# Smallest use of a unit that makes it the limit, as a share of the largest use that kernels reach on this GPU.
_BUSY = 0.6
# The same for a unit whose largest use is not known, as a share of the peak. Kernels hardly reach more on any GPU.
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
    basis: Basis = Basis.PEAK
    """What the use of the most used unit, or of PCIe, is compared with."""
    units: tuple[String, ...] = ()
    """The units that are the limit, as members here, the most used one first."""
    samples: Unsigned
    """Number of samples, each of a second."""
    graphics: Share
    """Share of the time in which a kernel runs."""
    sm_active: Share
    """Share of the SMs with work."""
    occupancy: Share
    """Threads, by the number that the SMs have room for."""
    dram: Share
    """Use of the bandwidth of the GPU's memory."""
    tensor: Share
    """Use of the tensor cores."""
    fp32: Share
    """Use of the units for 32-bit floating-point numbers."""
    fp64: Share
    """Use of those for 64-bit floating-point numbers."""
    fp16: Share
    """Use of those for 16-bit floating-point numbers."""
    integer: Share
    """Use of those for integers."""
    pcie_to_gpu: _MEBIBYTES
    """Traffic over PCIe to the GPU in MiB/s, in all of the time."""
    pcie_from_gpu: _MEBIBYTES
    """Traffic over PCIe from the GPU in MiB/s, in all of the time."""

    @property
    def busy(self) -> tuple[str, ...]:
        """The units in use, the most used one first."""
        return tuple(sorted(UNITS, key=lambda unit: -getattr(self, unit)))


class _Use(NamedTuple):
    """A use as a share, its standard error between samples, its degrees of freedom, and the error of the counters."""

    value: float
    error: float
    freedom: int
    margin: float

    def is_above(self, threshold: float) -> bool:
        """True if the use is at least ``threshold``, whatever its errors."""
        return self._is_beyond(self.value - self.margin - threshold)

    def is_below(self, threshold: float) -> bool:
        """True if the use is at most ``threshold``, whatever its errors."""
        return self._is_beyond(threshold - self.value - self.margin)

    def of(self, reached: float) -> _Use:
        """The use as a share of what is reached."""
        return _Use(self.value / reached, self.error / reached, self.freedom, self.margin / reached)

    def _is_beyond(self, distance: float) -> bool:
        if distance < 0 or self.error <= 0:
            return distance >= 0
        return student_t_two_sided(distance / self.error, self.freedom) <= _DOUBT


def limit_of(
    samples: Iterable[Mapping[str, float | None]],
    reach: Mapping[str, Known],
    *,
    copies: float = 0.0,
    is_alone: bool = True,
) -> KernelLimit | None:
    """What limits the kernels of a GPU by samples of its counters (percentages, and MiB/s).

    ``reach`` is what is known of the GPU, and ``copies`` the part (0 to 1) of the GPU's work that copies take. None
    without enough samples or kernels.
    """
    wanted = (*PERCENTAGES, *PCIE)
    known = [
        {name: value for name in wanted if (value := sample.get(name)) is not None}
        for sample in samples
        if all(sample.get(name) is not None for name in wanted)
    ]
    if len(known) < _LEAST_SAMPLES:
        return None
    means = {name: sum(sample[name] for sample in known) / len(known) for name in wanted}
    graphics = means[GRAPHICS] / 100
    traffic = {name: means[name] for name in PCIE}
    full = [name for name in PCIE if name in reach and means[name] >= _BUSY * reach[name].value and copies > 1 / 2]
    with_kernels = [sample for sample in known if sample[GRAPHICS] > 0]
    least = _LEAST_SAMPLES if graphics >= _LITTLE else _LEAST_OF_LITTLE
    has_kernels = graphics >= _LEAST_GRAPHICS and len(with_kernels) >= least
    if not has_kernels and not full:
        return None
    uses = {name: _use(with_kernels, name) for name in PERCENTAGES if name != GRAPHICS} if has_kernels else {}
    limit, units, decisive = _limit(uses, reach) if uses else (Limit.UNKNOWN, (), "")
    if full:
        limit, units, decisive = Limit.PCIE, (), full[0]
    return KernelLimit(
        limit=limit if is_alone else Limit.SHARED,
        units=units if is_alone else (),
        basis=reach[decisive].basis if decisive in reach else Basis.PEAK,
        samples=len(known),
        graphics=min(graphics, 1.0),
        **{name: min(uses[name].value, 1.0) if uses else 0.0 for name in PERCENTAGES if name != GRAPHICS},
        **traffic,
    )


def _use(samples: list[dict[str, float]], name: str) -> _Use:
    """The use of a unit while kernels run: a ratio of two means, with the error of such a ratio."""
    count, graphics = len(samples), sum(sample[GRAPHICS] for sample in samples)
    ratio = sum(sample[name] for sample in samples) / graphics
    squares = sum((sample[name] - ratio * sample[GRAPHICS]) ** 2 for sample in samples)
    error = sqrt(squares * count / (count - 1)) / graphics
    return _Use(ratio, error, count - 1, 100 * _COUNTER_ERROR * count / graphics)


def _limit(uses: Mapping[str, _Use], reach: Mapping[str, Known]) -> tuple[Limit, tuple[str, ...], str]:
    """The limit with its units, and the most used unit of all.

    A use that may lie on both sides of a threshold makes the limit unknown.
    """
    unknown = _BUSY_OF_PEAK / _BUSY
    shares = {unit: uses[unit].of(reach[unit].value if unit in reach else unknown) for unit in UNITS}
    first, *others = sorted(UNITS, key=lambda unit: -shares[unit].value)
    busy = tuple(unit for unit in (first, *others) if shares[unit].is_above(_BUSY))
    if len(busy) > 1:
        return Limit.SEVERAL, busy, first
    if busy and all(shares[unit].is_below(_BUSY) for unit in others):
        return Limit(first), busy, first
    if all(shares[unit].is_below(_IDLE) for unit in UNITS):
        if uses["sm_active"].is_below(_FEW_SMS):
            return Limit.FEW_BLOCKS, (), first
        if uses["sm_active"].is_above(_MOST_SMS) and uses["occupancy"].is_below(_FEW_THREADS):
            return Limit.LATENCY, (), first
    return Limit.UNKNOWN, (), first
