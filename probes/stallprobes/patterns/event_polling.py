"""Threads that poll events or streams beside launches and copies."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, several, variant

_VICTIMS = (probe("launch"), probe("d2h-pinned"))


PATTERN = Pattern(
    name="event-poll-storm",
    title="Threads that poll events without a pause slow down launches and copies",
    see="One, 4 or 16 threads each wait for a kernel of 4 ms: they call cuEventQuery or cuStreamQuery until it is "
    "complete. Two more threads make the calls that are measured: one launches, the other one copies to pinned "
    "memory. With blocking waits in place of the queries, the same kernels run and no thread polls.",
    why="Each query is a call of the driver, about a million of them each second in each thread. Other calls were "
    "reported to share the driver's locks with them; on an H200 a query waits for no lock that launches hold. A thread "
    "that polls also needs a core of its own: with more such threads than cores, other threads wait for a CPU. The "
    "host control shows that part.",
    remedy="Create the event with CU_EVENT_BLOCKING_SYNC and wait in cuEventSynchronize, which sleeps. Where a thread "
    "must poll, let it sleep between two queries, and let one thread poll for all.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of vLLM (vllm-project/vllm #47081: event waits that spin on the driver's lock made one of several "
    "processes late; blocking events cured it) and of TensorFlow (tensorflow/tensorflow #6224: 15 000 queries for each "
    "event). What an H200 shows is not recorded yet.",
    variants=(
        variant(
            "x1",
            Kind.CONTROL,
            "one thread polls an event",
            (*_VICTIMS, *several("event-poll", 1)),
            expect="Launches and copies take as long as without it.",
            why="A query does not wait for a lock that launches hold, and one thread that polls occupies one core.",
        ),
        variant(
            "x4",
            Kind.CONTROL,
            "4 threads poll events",
            (*_VICTIMS, *several("event-poll", 4)),
            expect="Reported: launches and copies take longer with each thread that polls.",
        ),
        variant(
            "x16",
            Kind.STALL,
            "16 threads poll events",
            (*_VICTIMS, *several("event-poll", 16)),
            expect="Reported: launches and copies take longer with each thread that polls. On a machine with fewer "
            "cores the host control slows down too.",
        ),
        variant(
            "streams-x16",
            Kind.STALL,
            "16 threads poll their streams",
            (*_VICTIMS, *several("stream-poll", 16)),
            expect="As with events.",
            why="cuStreamQuery returns the state of a stream as cuEventQuery returns that of an event.",
        ),
        variant(
            "back-off-x16",
            Kind.REMEDY,
            "16 threads poll events each 0.1 ms",
            (*_VICTIMS, *several("event-backoff", 16)),
            expect="Launches and copies take as long as without these threads, which notice the end of their kernels "
            "up to 0.1 ms later.",
            why="Each thread makes some 25 queries in place of thousands, and sleeps between them.",
            remedy="This is the second remedy.",
        ),
        variant(
            "blocking-x16",
            Kind.REMEDY,
            "16 threads wait for blocking events",
            (*_VICTIMS, *several("event-block", 16)),
            expect="Launches and copies take as long as without these threads. A thread notices the end of its kernel "
            "later than by polling, by the time that it takes to wake up.",
            why="A thread that waits for a blocking event sleeps until the GPU interrupts, and makes no call.",
            remedy="This is the first remedy.",
        ),
    ),
)
