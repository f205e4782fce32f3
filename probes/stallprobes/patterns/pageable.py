"""Report 3: a pageable copy in one thread holds up launches in another."""

from __future__ import annotations

from stallprobes.catalog import Place, on_null_stream, on_shared_stream
from stallprobes.model import Kind, Pattern, Variant
from stallprobes.patterns._build import probe, with_control

_PLACES: dict[str, tuple[Place, Place, str]] = {
    "other-stream": (Place(), Place(), "on another non-blocking stream"),
    "same-stream": (on_shared_stream(), on_shared_stream(), "on the same stream"),
    "null-stream": (on_null_stream(), on_null_stream(), "both threads on the NULL stream, as PyTorch does"),
}
_COPIES = {
    "pinned": ("d2h-pinned-large", "copies into pinned memory"),
    "warm": ("d2h-pageable-warm", "copies into a pageable buffer used before"),
    "fresh": ("d2h-pageable-fresh", "copies into pageable memory just mapped"),
}
_PINNED = "The copy engine writes pinned memory by itself: the call only queues the copy and holds no lock meanwhile."
_WHY = (
    "A pageable copy is staged: the driver copies through its own pinned buffer on the calling thread and holds the "
    "stream's lock, and now and then the context's, until all bytes are there. A launch that needs the lock waits, and "
    "since locks are handed over without fairness, a thread that copies without a pause can keep it for good."
)


def _expect(copy: str, stream: str) -> str:
    match copy, stream:
        case "pinned", "other-stream":
            return "The launches stay as they were."
        case "pinned", _:
            return "The launch calls stay quick; the kernels wait in the stream behind the copies, as they must."
        case "warm", "other-stream":
            return "The launches take a few times as long, microseconds still: another stream is little disturbed."
        case "fresh", "other-stream":
            return "The launches are little disturbed."
        case "warm", _:
            return "The launching thread starves: its calls hardly return at all."
        case _:
            return "Launch calls take as long as a whole copy, over 100 ms."


def _kind(copy: str, stream: str) -> Kind:
    if copy == "pinned":
        return Kind.REMEDY
    return Kind.CONTROL if stream == "other-stream" else Kind.STALL


def _variant(copy: str, stream: str) -> Variant:
    entry, words = _COPIES[copy]
    victim_place, copy_place, where = _PLACES[stream]
    remedy = copy == "pinned"
    return Variant(
        f"{copy}-{stream}",
        _kind(copy, stream),
        f"{words}; launches {where}" if stream != "null-stream" else f"{words}; {where}",
        with_control(probe("launch", victim_place), probe(entry, copy_place)),
        expect=_expect(copy, stream),
        why=_PINNED if remedy else _WHY,
        helps="This is the remedy: pinned memory." if remedy else "Pinned memory, and a stream for each thread.",
    )


PATTERN = Pattern(
    name="pageable-d2h-vs-launch",
    title="A pageable copy in one thread holds up launches in another",
    see="One thread copies 256 MiB to the host again and again, another launches a tiny kernel. With pageable memory "
    "and a common stream the launch call itself blocks, for a whole copy or for good; with pinned memory it does not.",
    why=_WHY,
    helps="Pinned memory for the copies; a non-blocking stream for each thread in place of the default stream.",
    reported="A PyTorch user with two threads, one copying a 256 MB tensor to new CPU memory, one computing on 1024 "
    "elements: in Nsight Systems the second sits in cudaLaunchKernel while the first copies.",
    variants=tuple(_variant(copy, stream) for copy in _COPIES for stream in _PLACES),
)
