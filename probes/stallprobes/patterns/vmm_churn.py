"""GPU memory that is allocated or mapped again and again, beside launches and copies."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

# Victims in each variant of this pattern.
_VICTIMS = (probe("launch"), probe("d2d"), probe("d2h-pinned"))


PATTERN = Pattern(
    name="vmm-churn",
    title="Allocating GPU memory delays launches and copies; mapping it does not",
    see="One thread creates 64 MiB of GPU memory, maps it, gives access to it, unmaps it and releases it, as PyTorch's "
    "expandable segments do when they grow and shrink. Other threads launch and copy on streams of their own. On an "
    "H200 their calls keep their time: waits grow by 1 to 2 µs. Beside cuMemAlloc and cuMemFree of the same size a "
    "launch takes 52 to 75 µs in place of 6, and a D2D copy 0.4 to 0.7 ms in place of 11 µs.",
    why="cuMemAlloc and cuMemFree hold locks of their context that launches and copies need, for the whole of their "
    "work. cuMemCreate, cuMemMap, cuMemSetAccess and cuMemUnmap do the same work in steps and hold none of these "
    "locks.",
    remedy="Allocate from a pool that keeps its memory: cuMemAllocFromPoolAsync with a release threshold maps nothing "
    "once it has grown. Or map and unmap memory in place of cuMemAlloc and cuMemFree.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Developers of PyTorch (pytorch/pytorch #96995: the cost of mapping grows with the number of pieces, it "
    "waits for the GPU, and should be considered expensive); see also NVIDIA/TensorRT-LLM #11641. On an H200 "
    "16 pieces take 0.8 ms in place of 0.1 ms, but no other call waits for them.",
    variants=(
        variant(
            "one-piece",
            Kind.CONTROL,
            "64 MiB in one piece",
            (*_VICTIMS, probe("map-unmap")),
            expect="Launches and copies keep their time. Creating, mapping, unmapping and releasing takes 0.1 ms.",
            why="None of these calls holds a lock that launches and copies need.",
        ),
        variant(
            "pieces",
            Kind.CONTROL,
            "64 MiB in 16 pieces",
            (*_VICTIMS, probe("map-unmap-pieces")),
            expect="Launches and copies keep their time. The thread itself needs eight times as long as for one piece.",
            why="Each piece is created, mapped, unmapped and released by calls of its own.",
        ),
        variant(
            "create-only",
            Kind.CONTROL,
            "64 MiB that is created and released, but mapped nowhere",
            (*_VICTIMS, probe("create-release")),
            expect="Launches and copies keep their time.",
            why="Creating and releasing memory takes none of the locks that launches need.",
        ),
        variant(
            "alloc-free",
            Kind.STALL,
            "64 MiB by cuMemAlloc and cuMemFree",
            (*_VICTIMS, probe("alloc-free")),
            expect="Launches and copies wait, copies for longer.",
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
