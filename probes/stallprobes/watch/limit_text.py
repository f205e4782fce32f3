"""What limits the kernels of a sequence, in a sentence."""

from __future__ import annotations

from stallprobes.machine.gpu_reach import Basis
from stallprobes.watch.division.limits import KernelLimit, Limit
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.division_text import percent
from stallprobes.watch.lines.result import ProgramSequence

# Units of a GPU: as what limits kernels, and in a list.
UNIT_WORDS = {
    "dram": ("the bandwidth of the GPU's memory", "memory"),
    "tensor": ("the tensor cores", "tensor cores"),
    "fp32": ("the FP32 units", "FP32"),
    "fp64": ("the FP64 units", "FP64"),
    "fp16": ("the FP16 units", "FP16"),
    "integer": ("the integer units", "integers"),
}
# What helps against some limits.
_HELPS = {
    Limit.DRAM: "Kernels that are fused, or numbers of fewer bits, move less data.",
    Limit.FP32: "Products of matrices would use the tensor cores in TF32 or in 16-bit numbers.",
    Limit.FEW_BLOCKS: "Larger batches, or kernels of several streams at once, would fill it.",
    Limit.LATENCY: "More threads, or more independent work in each, would hide that.",
}
# What the use of a unit is compared with.
_BASES = {
    Basis.CALIBRATION: "beside what this GPU reached when it was calibrated",
    Basis.MODEL: "beside what GPUs of this model reach",
    Basis.PEAK: "beside the peak: stallscope calibrate measures what this GPU reaches",
}
# Largest number of units in a list.
_MOST_UNITS = 3
# Smallest use of a unit in a list.
_LEAST_USE = 0.05


def limit_text(sequence: SequenceDivision) -> str:
    """What limits its kernels: ``Its kernels are limited by the tensor cores (in use while they run: tensor cores 93 %;
    …).``; "" if NVML's counters were not read."""
    if not isinstance(sequence, ProgramSequence):
        return ""
    limit = sequence.limit
    if limit is None:
        why = sequence.no_limit
        return f"What limits its kernels is not known. NVML's counters: {why}." if why else ""
    sms = f"{percent(limit.sm_active)} of the multiprocessors have work"
    by = f"NVML's counters of the whole GPU, {limit.samples} s, {_BASES[limit.basis]}"
    match limit.limit:
        case Limit.SHARED:
            return "What limits its kernels is not known: others use the GPU too, and NVML counts all together."
        case Limit.UNKNOWN:
            text = f"What limits its kernels is not known: while they run, {sms}"
        case Limit.PCIE:
            rates = f"{limit.pcie_to_gpu / 1024:.0f} GiB/s to the GPU and {limit.pcie_from_gpu / 1024:.0f} from it"
            return f"Its copies are limited by PCIe: {rates} ({by})."
        case Limit.FEW_BLOCKS:
            text = f"Its kernels do not fill the GPU: while they run, {sms}"
        case Limit.LATENCY:
            waits = "Its kernels wait for memory or for results of their own"
            text = f"{waits}: while they run, {sms}, with {percent(limit.occupancy)} of the threads that fit there"
        case Limit.SEVERAL:
            text = f"Its kernels are limited by {' and by '.join(UNIT_WORDS[unit][0] for unit in limit.units)}"
        case unit:
            text = f"Its kernels are limited by {UNIT_WORDS[unit][0]}"
    text += f" ({_uses(limit)}; {by})."
    return " ".join(filter(None, (text, _HELPS.get(limit.limit))))


def limit_label(sequence: ProgramSequence) -> str:
    """What limits its kernels, in a few words: ``limited by memory, 83 % in use``; "" if its counters were not read."""
    limit = sequence.limit
    if limit is None:
        return ""
    match limit.limit:
        case Limit.SHARED:
            return "limit not known: the GPU is shared"
        case Limit.UNKNOWN:
            return "limit not known"
        case Limit.PCIE:
            return "copies limited by PCIe"
        case Limit.FEW_BLOCKS:
            return f"{percent(limit.sm_active)} of the multiprocessors have work"
        case Limit.LATENCY:
            return "waiting for memory or results of their own"
        case Limit.SEVERAL:
            return f"limited by {' and '.join(UNIT_WORDS[unit][1] for unit in limit.units)}"
        case unit:
            return f"limited by {UNIT_WORDS[unit][1]}, {percent(getattr(limit, unit))} in use"


def _uses(limit: KernelLimit) -> str:
    """The units in use: ``in use while they run: memory 83 %, FP32 12 %``."""
    used = [unit for unit in limit.busy if getattr(limit, unit) >= _LEAST_USE][:_MOST_UNITS]
    named = [f"{UNIT_WORDS[unit][1]} {percent(getattr(limit, unit))}" for unit in used]
    return f"in use while they run: {', '.join(named)}" if named else "no unit is in use"
