"""GPU memory that is mapped and unmapped beside launches and copies."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

_VICTIMS = (probe("launch"), probe("d2d"), probe("d2h-pinned"))


PATTERN = Pattern(
    name="vmm-churn",
    title="Mapping and unmapping GPU memory delays launches and copies",
    see="One thread creates 64 MiB of GPU memory, maps it, gives access to it, unmaps it and releases it, as PyTorch's "
    "expandable segments do when they grow and shrink. Other threads launch and copy on streams of their own. Their "
    "calls take longer, as beside cuMemAlloc and cuMemFree.",
    why="cuMemSetAccess and cuMemUnmap change the GPU's page tables. The driver does that under locks that launches "
    "and copies of the same context need, and it takes longer the more pieces the memory has.",
    remedy="Allocate from a pool that keeps its memory: cuMemAllocFromPoolAsync with a release threshold maps nothing "
    "once it has grown. Or keep memory mapped, reuse it, and map in few large pieces.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Developers of PyTorch (pytorch/pytorch #96995: the cost of mapping grows with the number of pieces, it "
    "waits for the GPU, and should be considered expensive); see also NVIDIA/TensorRT-LLM #11641. What an H200 shows "
    "is not recorded yet.",
    variants=(
        variant(
            "one-piece",
            Kind.STALL,
            "64 MiB in one piece",
            (*_VICTIMS, probe("map-unmap")),
            expect="Launches and copies that meet cuMemSetAccess or cuMemUnmap wait for them.",
        ),
        variant(
            "pieces",
            Kind.STALL,
            "64 MiB in 16 pieces",
            (*_VICTIMS, probe("map-unmap-pieces")),
            expect="More launches and copies wait, each for a shorter call.",
        ),
        variant(
            "create-only",
            Kind.CONTROL,
            "64 MiB that is created and released, but mapped nowhere",
            (*_VICTIMS, probe("create-release")),
            expect="Launches are not delayed: memory without an address changes no page table.",
            why="Creating and releasing memory takes none of the locks that launches need.",
        ),
        variant(
            "alloc-free",
            Kind.STALL,
            "64 MiB by cuMemAlloc and cuMemFree",
            (*_VICTIMS, probe("alloc-free")),
            expect="Launches and copies wait as well: both calls map and unmap memory too.",
            why="cuMemAlloc and cuMemFree hold the same locks for the whole of their work.",
        ),
        variant(
            "pool",
            Kind.REMEDY,
            "64 MiB from a pool that keeps its memory",
            (*_VICTIMS, probe("pool-alloc")),
            expect="Launches and copies are not delayed.",
            why="An allocation from a pool that has grown maps nothing and takes the lock of its stream only.",
            remedy="This is the remedy.",
        ),
    ),
)
