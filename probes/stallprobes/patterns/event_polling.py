"""Threads that wait for events, by queries or by blocking, beside launches and copies."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, several, variant

# Victims in each variant of this pattern.
_VICTIMS = (probe("launch"), probe("d2h-pinned"))


PATTERN = Pattern(
    name="event-poll-storm",
    title="Threads that wait for events, by polling or by blocking, beside launches and copies",
    see="One, 4 or 16 threads each wait for a kernel of 4 ms: they call cuEventQuery or cuStreamQuery until it is "
    "complete. Two more threads make the calls that are measured: one launches, the other one copies to pinned "
    "memory. On an H200 queries delay neither of them. With 16 threads that wait for blocking events in place of the "
    "queries, a launch waits for their kernels: 3.3 ms at p50 in place of 5.2 µs, 17 ms at p99.",
    why="Each query is a call of the driver, about a million of them each second in each thread. It takes no lock that "
    "launches hold. A thread that polls needs a core of its own: with more such threads than cores, other threads wait "
    "for a CPU, as the host control shows. A blocking event makes the GPU interrupt the host, and kernels behind its "
    "record in the same hardware queue wait until its own kernel ends. A context has 8 hardware queues by default, "
    "which its streams share. CUDA's documentation does not say that they wait so: it follows from the waits with 8 "
    "and with 32 queues.",
    remedy="Let a thread that polls sleep between two queries. Wait for blocking events on fewer streams than there "
    "are hardware queues, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before the program's first CUDA call: with it the "
    "launch beside 16 threads waited 8.5 µs on an H200.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="Users of vLLM (vllm-project/vllm #47081: event waits that spin on the driver's lock made one of several "
    "processes late; blocking events cured it) and of TensorFlow (tensorflow/tensorflow #6224: 15 000 queries for each "
    "event). On an H200 the queries were no stall, and the blocking events of many threads were one.",
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
            expect="Launches and copies take as long as without them.",
            why="No call waits for a query, as long as each thread has a core.",
        ),
        variant(
            "x16",
            Kind.CONTROL,
            "16 threads poll events",
            (*_VICTIMS, *several("event-poll", 16)),
            expect="Launches and copies take as long as without them at p50. On a machine with few cores some calls "
            "wait "
            "for a CPU, and the host control does too.",
            why="No call waits for a query. A few calls waited for a CPU: 3.7 ms at most on an H200 with 16 cores.",
        ),
        variant(
            "streams-x16",
            Kind.CONTROL,
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
            remedy="This is the remedy for threads that must poll.",
        ),
        variant(
            "blocking-x4",
            Kind.REMEDY,
            "4 threads wait for blocking events",
            (*_VICTIMS, *several("event-block", 4)),
            expect="Launches and copies take as long as without these threads. A thread notices the end of its kernel "
            "0.1 to 0.2 ms later than by polling, since it has to wake up.",
            why="A thread that waits for a blocking event sleeps until the GPU interrupts. Each stream has a hardware "
            "queue of its own.",
            remedy="This is a remedy for threads that poll, while their streams are fewer than the hardware queues.",
        ),
        variant(
            "blocking-x16",
            Kind.STALL,
            "16 threads wait for blocking events",
            (*_VICTIMS, *several("event-block", 16)),
            expect="A launch waits for kernels of other streams, mostly for one, sometimes for four. The kernels of "
            "the 16 "
            "threads wait for each other too, and half as many run. Copies by a copy engine are not delayed.",
            remedy="Wait on fewer streams, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before the first CUDA call.",
        ),
    ),
)
