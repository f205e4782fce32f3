"""GPU memory that is mapped and unmapped beside launches and copies."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom, Variant
from stallprobes.patterns._build import probe, variant

_VICTIMS = (probe("launch"), probe("d2d"), probe("d2h-pinned"))


def _variant(name: str, kind: Kind, title: str, entry: str, *, expect: str, why: str = "", remedy: str = "") -> Variant:
    return variant(name, kind, title, (*_VICTIMS, probe(entry)), expect=expect, why=why, remedy=remedy)


PATTERN = Pattern(
    name="vmm-churn",
    title="Mapping and unmapping GPU memory delays launches and copies",
    see="One thread creates 64 MiB of GPU memory, maps it, gives access to it, unmaps it and releases it, as PyTorch's "
    "expandable segments do when they grow and shrink. Other threads launch and copy on streams of their own. Their "
    "calls take longer, as beside cuMemAlloc and cuMemFree.",
    why="cuMemSetAccess and cuMemUnmap change the GPU's page tables. A driver does that under locks that launches and "
    "copies of the same context need, and it costs more the more pieces the memory has.",
    remedy="Allocate from a pool that keeps its memory: cuMemAllocFromPoolAsync with a release threshold maps nothing "
    "once it has grown. Or keep memory mapped, reuse it, and map in few large pieces.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Developers of PyTorch (pytorch/pytorch #96995: mapping costs in proportion to the pieces, waits for the "
    "GPU and is to be considered expensive); see also NVIDIA/TensorRT-LLM #11641. What an H200 shows is not recorded "
    "yet.",
    variants=(
        _variant(
            "one-piece",
            Kind.STALL,
            "64 MiB in one piece",
            "map-unmap",
            expect="Launches and copies that meet cuMemSetAccess or cuMemUnmap wait for them.",
        ),
        _variant(
            "pieces",
            Kind.STALL,
            "64 MiB in 16 pieces",
            "map-unmap-pieces",
            expect="More launches and copies wait, each for a shorter call.",
        ),
        _variant(
            "create-only",
            Kind.CONTROL,
            "64 MiB that is created and released, but mapped nowhere",
            "create-release",
            expect="Launches keep their time: without an address no page table changes.",
            why="Memory without an address needs none of the locks that launches need.",
        ),
        _variant(
            "alloc-free",
            Kind.STALL,
            "64 MiB by cuMemAlloc and cuMemFree",
            "alloc-free",
            expect="Launches and copies wait as well: both calls map and unmap memory too.",
            why="cuMemAlloc and cuMemFree hold the same locks for the whole of their work.",
        ),
        _variant(
            "pool",
            Kind.REMEDY,
            "64 MiB from a pool that keeps its memory",
            "pool-alloc",
            expect="Launches and copies keep their time.",
            why="An allocation from a pool that has grown maps nothing and takes the lock of its stream only.",
            remedy="This is the remedy.",
        ),
    ),
)
