"""Random schedules: programs by seed, each with the name of its shape, for tests/truth/program.c.

A schedule has actors (threads, and child processes without a GPU), each of which repeats its operations. Times of the
host are microseconds, those of kernels nanoseconds. Consecutive seeds go through all shapes; half of them are mixtures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

# Number of steps by which the host may be ahead of the GPU in a program whose waits are removed.
STEPS_AHEAD = 8
# Number of the first CUDA event that only programs with removed waits use.
FIRST_SPARE_EVENT = 8
# Largest number of operations of an actor, as in program.c.
MAX_OPERATIONS = 256
# Capacity (executed operations) of an actor's trace: smallest, and per second of the schedule. A full trace ends the
# program.
MIN_ENTRIES, ENTRIES_PER_SECOND = 200_000, 70_000
# Kinds of operations that only wait for the GPU.
WAITS = frozenset({"sync", "sync_event", "sync_device", "poll", "spin"})
# Roles of actors. MAIN: the program's own work. FEEDS: computes the input of the main thread. CLIENT: sends requests;
# its pauses are idle time. OTHER: runs beside the program; its host time is no cause, and its GPU work is in no share.
MAIN, FEEDS, CLIENT, OTHER = "main", "feeds", "client", "other"


@dataclass(frozen=True)
class Operation:
    """An operation by its word in program.c, with its numbers."""

    kind: str
    numbers: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __getitem__(self, at: int) -> int:
        return self.numbers[at]


@dataclass(frozen=True)
class Actor:
    """A thread or a child process, and its operations, which it repeats."""

    name: str
    operations: tuple[Operation, ...]
    role: str = MAIN
    child: bool = False

    @property
    def submits(self) -> bool:
        """Whether it submits work to a GPU."""
        return any(operation.kind in ("launch", "graph", "copy") for operation in self.operations)


@dataclass(frozen=True)
class Schedule:
    """A program. The first actor has the steps. ``knowable``: what bounds it can be told from outside."""

    shape: str
    actors: tuple[Actor, ...]
    seed: int = 0
    seconds: float = 0.0
    noise: int = 10
    gpus: int = 1
    cpus: int = 0
    knowable: bool = True

    @property
    def text(self) -> str:
        """As program.c reads it."""
        lines = [f"seconds {self.seconds:g}", f"seed {self.seed}", f"noise {self.noise}", f"gpus {self.gpus}"]
        lines += [f"cpus {self.cpus}", f"entries {max(MIN_ENTRIES, round(self.seconds * ENTRIES_PER_SECOND))}"]
        for actor in self.actors:
            lines.append(f"{'child' if actor.child else 'thread'} {actor.name}")
            lines += [" ".join([operation.kind, *map(str, operation.numbers)]) for operation in actor.operations]
        return "\n".join(lines) + "\n"


def op(kind: str, *numbers: float) -> Operation:
    """An operation."""
    first, second, third, fourth = (*map(round, numbers), 0, 0, 0, 0)[:4]
    return Operation(kind, (first, second, third, fourth))


def launch(us: float, count: int = 1, stream: int = 0, gpu: int = 0) -> Operation:
    """Launches of ``count`` kernels of ``us`` microseconds."""
    return op("launch", us * 1000, count, stream, gpu)


def graph(us: float, count: int, stream: int = 0) -> Operation:
    """A launch of a graph of ``count`` dependent kernels."""
    return op("graph", us * 1000, count, stream, 0)


def copy(mib: float, from_gpu: bool = False, pageable: bool = False, stream: int = 0) -> Operation:
    """A copy: from pageable memory it blocks."""
    return op("copy", max(mib * 1024, 4), from_gpu, pageable, stream)


# Copy of 4 KiB from the GPU to pageable memory, which waits for the GPU.
READ_BACK = copy(0, from_gpu=True, pageable=True)
# End of a step, and wait for stream 0 of GPU 0.
STEP, SYNC = op("step"), op("sync")


def main(*operations: Operation) -> Actor:
    """The main thread."""
    return Actor("main", operations)


def loader(us: float, pipe: int = 0, name: str = "loader") -> Actor:
    """A child process that computes an item and sends it through a pipe."""
    return Actor(name, (op("host", us), op("send", pipe)), FEEDS, child=True)


def between(chance: Random, low: float, high: float) -> float:
    """A number, uniform by its logarithm."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))


# Shapes ---------------------------------------------------------------------------------------------------------------
# A kind of program: function that makes a random schedule of this kind.
Shape = Callable[[Random], Schedule]
# Shapes by name, in the order in which ``schedule`` goes through them.
SHAPES: dict[str, Shape] = {}
# Shortest run time (s) of a program with phases.
_PHASES_S = 24.0
# Number of loops by which the host's time grows; length (s) of a slow begin.
_STAIRS, _WARM_UP_S = 20, 8.0
# Names of the shapes that need two GPUs.
_TWO_GPUS = frozenset({"gpus-in-turn", "gpus-by-events"})


def shape(make: Callable[[Random], Schedule | Actor | tuple[Actor, ...]]) -> Shape:
    """Add a shape, under the name of its function."""
    name = make.__name__.strip("_").replace("_", "-")

    def made(chance: Random) -> Schedule:
        found = make(chance)
        if isinstance(found, Actor):
            found = (found,)
        return replace(found, shape=name) if isinstance(found, Schedule) else Schedule(name, found)

    SHAPES[name] = made
    return made


@shape
def _training(chance: Random) -> Actor:
    host, kernel = between(chance, 20, 150), between(chance, 10, 150)
    layers = (op("loop", chance.randint(10, 60)), op("host", host), launch(kernel), op("end"))
    return main(*layers, *chance.choice([(), (READ_BACK,), (SYNC,)]), op("host", between(chance, 20, 500)), STEP)


@shape
def _full_queue(chance: Random) -> Actor:
    kernel = between(chance, 50, 500)
    return main(
        launch(kernel, round(between(chance, 5000, 40000) / kernel)), op("host", kernel * chance.random()), STEP
    )


@shape
def _in_turn(chance: Random) -> Actor:
    wait = chance.choice([SYNC, op("sync_device"), READ_BACK])
    return main(launch(between(chance, 200, 20000)), wait, op("host", between(chance, 200, 20000)), STEP)


@shape
def _polling(chance: Random) -> Actor:
    return main(launch(between(chance, 500, 8000)), op("poll"), op("host", between(chance, 500, 8000)), STEP)


@shape
def _spins_on_memory(chance: Random) -> Schedule:
    step = (launch(between(chance, 1000, 8000)), op("spin"), op("host", between(chance, 500, 8000)), STEP)
    return Schedule("", (main(*step),), knowable=False)


@shape
def _host_function(chance: Random) -> Actor:
    waits = (op("callback", 0), op("get", 0))
    return main(launch(between(chance, 500, 10000)), *waits, op("host", between(chance, 500, 10000)), STEP)


@shape
def _slow_loader(chance: Random) -> tuple[Actor, ...]:
    kernel = between(chance, 1000, 20000)
    step = (op("receive", 0), op("host", kernel / 10), launch(kernel), *chance.choice([(), (SYNC,)]), STEP)
    return main(*step), loader(kernel * between(chance, 0.8, 5))


@shape
def _small_kernels(chance: Random) -> Actor:
    return main(launch(between(chance, 1, 6), chance.randint(100, 800)), *chance.choice([(), (SYNC,)]), STEP)


@shape
def _small_graph(chance: Random) -> Actor:
    end = (READ_BACK, op("host", between(chance, 20, 500)), STEP)
    return main(graph(between(chance, 1, 10), chance.randint(50, 1500)), *end)


@shape
def _copies_over_kernels(chance: Random) -> Actor:
    size, kernel = between(chance, 4, 200), between(chance, 500, 6000)
    step: list[Operation] = []
    for event in (0, 1):
        step += [op("sync_event", event), op("host", kernel * chance.uniform(0, 0.5)), copy(size, stream=1)]
        step += [op("record", event + 2, 1), op("await", event + 2, 0), launch(kernel), op("record", event, 0), STEP]
    return main(*step)


@shape
def _pageable_copies(chance: Random) -> Actor:
    copies = (copy(between(chance, 1, 60), pageable=True), launch(between(chance, 300, 6000)), copy(2, True, True))
    return main(op("host", between(chance, 100, 3000)), *copies, STEP)


@shape
def _allocation(chance: Random) -> Actor:
    count = chance.randint(1, 12)
    storm = (op("loop", count), op("pin", between(chance, 1024, 16384)), op("unpin"), op("end"))
    held = (op("allocate", between(chance, 1024, 65536)), launch(between(chance, 200, 4000)), op("free"))
    return main(*chance.choice([storm, ()]), op("host", between(chance, 100, 3000)), *held, STEP)


@shape
def _lock(chance: Random) -> tuple[Actor, ...]:
    work = between(chance, 500, 4000)
    step = (op("lock", 0), op("host", work), launch(work), op("unlock", 0), *chance.choice([(), (SYNC,)]), STEP)
    held = (op("lock", 0), op("host", work * chance.uniform(0.3, 4)), op("unlock", 0), op("sleep", work / 2))
    return main(*step), Actor("logger", held, OTHER)


@shape
def _gpus_in_turn(chance: Random) -> Schedule:
    kernel = between(chance, 500, 10000)
    other = op("sync", 0, 1)
    step = (launch(kernel), SYNC, launch(kernel * between(chance, 0.5, 2), gpu=1), other, op("host", kernel / 20), STEP)
    return Schedule("", (main(*step),), gpus=2)


@shape
def _gpus_by_events(chance: Random) -> Schedule:
    kernel, step = between(chance, 500, 10000), list[Operation]()
    in_turn = chance.random() < 0.5
    for event in (0, 1):
        step += [op("sync_event", event), *[op("await", 3, 0)] * in_turn, launch(kernel), op("record", 2, 0)]
        step += [op("await", 2, 0, 1), launch(kernel, gpu=1), op("record", 3, 0, 1), op("record", event, 0, 1), STEP]
    return Schedule("", (main(*step),), gpus=2)


@shape
def _server(chance: Random) -> tuple[Actor, ...]:
    kernel, load = between(chance, 500, 8000), between(chance, 0.03, 0.9)
    request = (op("receive", 0), op("host", kernel / 3), launch(kernel), SYNC, STEP)
    client = (op("pause", kernel * 4 / 3 / load), op("send", 0))
    return main(*request), Actor("client", client, CLIENT, child=True)


@shape
def _own_sleep(chance: Random) -> Actor:
    work = between(chance, 200, 5000)
    return main(op("sleep", work * between(chance, 0.3, 5)), op("host", work), launch(work), SYNC, STEP)


@shape
def _two_phases(chance: Random) -> Schedule:
    kernel, fast = between(chance, 2000, 10000), between(chance, 500, 2000)
    first = round(chance.uniform(0.3, 0.7) * _PHASES_S * 1e6 / kernel)
    busy = (op("loop", first), op("host", kernel / 10), launch(kernel), op("sync_event", 0), op("record", 0), STEP)
    late = (op("loop", 100000), op("receive", 0), op("host", fast / 5), launch(fast), STEP, op("end"))
    actors = main(*busy, op("end"), *late), loader(fast * between(chance, 2, 10))
    return Schedule("", actors, seconds=_PHASES_S)


@shape
def _train_and_evaluate(chance: Random) -> Schedule:
    work = between(chance, 300, 3000)
    times = round(chance.uniform(0.25, 0.35) * _PHASES_S * 1e6 / work)
    train = (op("loop", times), op("host", work / 5), launch(work), op("sync_event", 0), op("record", 0), STEP)
    evaluate = (op("loop", times), op("host", work), launch(work / 3), SYNC, STEP, op("end"))
    return Schedule("", (main(*train, op("end"), *evaluate),), seconds=_PHASES_S)


@shape
def _short_of_cpus(chance: Random) -> Schedule:
    step = (op("loop", 10), op("host", between(chance, 100, 1000)), launch(between(chance, 20, 300)), op("end"), STEP)
    burners = tuple(Actor(f"burner{at}", (op("host", 2000),), OTHER, child=True) for at in range(chance.randint(1, 3)))
    return Schedule("", (main(*step), *burners), cpus=1)


@shape
def _compiles(chance: Random) -> Actor:
    work = between(chance, 1000, 10000)
    return main(op("compile", work * between(chance, 0.5, 4)), op("host", work / 4), launch(work), SYNC, STEP)


@shape
def _loads_modules(chance: Random) -> Actor:
    return main(op("load"), op("host", between(chance, 200, 3000)), launch(between(chance, 500, 15000)), SYNC, STEP)


@shape
def _rare_slow_steps(chance: Random) -> Actor:
    work, rare = between(chance, 500, 4000), chance.choice([op("host", 60000), op("sleep", 60000), launch(60000)])
    usual = (
        op("loop", chance.randint(20, 80)),
        op("host", work * chance.random()),
        launch(work),
        SYNC,
        STEP,
        op("end"),
    )
    return main(*usual, rare)


@shape
def _long_steps(chance: Random) -> Schedule:
    length = between(chance, 0.3e6, 2e6)
    share = chance.uniform(0.1, 0.9)
    kernel = between(chance, 5, 500)
    launches = (op("loop", max(1, round(length * share / max(kernel, 6) / 500))), launch(kernel, 500), op("end"))
    step = (op("host", length * (1 - share)), *launches, SYNC, STEP)
    return Schedule("", (main(*step),), seconds=length * 13e-6)


@shape
def _two_threads(chance: Random) -> tuple[Actor, ...]:
    kernel, host = between(chance, 500, 8000), between(chance, 300, 5000)
    other = (launch(kernel, stream=2), op("sync", 2), op("host", host))
    return main(launch(kernel), SYNC, op("host", host), STEP), Actor("other", other, OTHER)


@shape
def _producer(chance: Random) -> tuple[Actor, ...]:
    kernel = between(chance, 1000, 8000)
    step = (op("get", 0), op("host", kernel / 5), launch(kernel), SYNC, STEP)
    return main(*step), Actor("producer", (op("host", kernel * between(chance, 0.3, 4)), op("put", 0, 2)), FEEDS)


@shape
def _forward_backward(chance: Random) -> tuple[Actor, ...]:
    host, kernel = between(chance, 500, 5000), between(chance, 500, 5000)
    back = (op("get", 0), op("host", host), launch(kernel), op("put", 1, 4))
    return main(op("host", host), launch(kernel), op("put", 0, 4), op("get", 1), STEP), Actor("backward", back)


@shape
def _accumulation(chance: Random) -> Actor:
    micro = (op("host", between(chance, 50, 2000)), launch(between(chance, 20, 300), chance.randint(1, 20)))
    update = (op("host", between(chance, 200, 5000)), launch(between(chance, 100, 2000)))
    return main(op("loop", chance.randint(4, 40)), *micro, op("end"), *update, chance.choice([SYNC, READ_BACK]), STEP)


@shape
def _two_sizes(chance: Random) -> Actor:
    small, large, host = between(chance, 2, 20), between(chance, 200, 4000), between(chance, 20, 4000)
    step = (launch(small, chance.randint(1, 20)), op("host", host), launch(large), STEP)
    return main(op("loop", 50), *step, op("end"), SYNC)


@shape
def _sleeping_poll(chance: Random) -> Actor:
    poll = op("poll", 0, 0, between(chance, 60, 1000))
    return main(launch(between(chance, 1000, 10000)), poll, op("host", between(chance, 500, 8000)), STEP)


@shape
def _downloads(chance: Random) -> Actor:
    size, kernel, host = between(chance, 4, 200), between(chance, 500, 6000), between(chance, 100, 6000)
    step: list[Operation] = []
    for event in (0, 1):
        # The buffer's last download has ended, and is processed, before the next one.
        step += [op("sync_event", event), op("host", host), launch(kernel), op("record", event + 2, 0)]
        step += [op("await", event + 2, 1), copy(size, from_gpu=True, stream=1), op("record", event, 1), STEP]
    return main(*step)


@shape
def _streamed(chance: Random) -> Actor:
    kernel, host, step = between(chance, 300, 6000), between(chance, 50, 3000), list[Operation]()
    up, down = between(chance, 4, 200), between(chance, 4, 200)
    for event in (0, 1):
        step += [op("sync_event", event), op("host", host), copy(up, stream=1), op("record", event + 2, 1)]
        step += [op("await", event + 2, 0), launch(kernel), op("record", event + 4, 0), op("await", event + 4, 2)]
        step += [copy(down, from_gpu=True, stream=2), op("record", event, 2), STEP]
    return main(*step)


@shape
def _prefetch(chance: Random) -> tuple[Actor, ...]:
    kernel = between(chance, 1000, 8000)
    size, host = kernel / 20 * chance.random(), kernel * between(chance, 0.2, 3)
    step, ahead = list[Operation](), list[Operation]()
    for event in (0, 1):
        ahead += [op("host", host), op("sync_event", event), copy(size, stream=1), op("record", event + 2, 1)]
        ahead += [op("put", 0, 2)]
        step += [
            op("get", 0),
            op("await", event + 2, 0),
            op("host", kernel / 5),
            launch(kernel),
            op("record", event, 0),
        ]
        step += [*chance.choice([(), (SYNC,)]), STEP]
    return main(*step), Actor("prefetch", tuple(ahead), FEEDS)


@shape
def _freed_ahead(chance: Random) -> Actor:
    kernel = between(chance, 200, 4000)
    held = (op("allocate", between(chance, 1024, 65536)), launch(kernel, chance.randint(1, 4)), op("free"))
    after = (op("host", kernel * between(chance, 0.1, 2)), launch(kernel * between(chance, 0.3, 3)))
    return main(*held, *after, *chance.choice([(), (SYNC,)]), STEP)


@shape
def _shared_stream(chance: Random) -> tuple[Actor, ...]:
    kernel, host = between(chance, 500, 5000), between(chance, 300, 5000)
    other = (launch(kernel * between(chance, 0.2, 2)), SYNC, op("host", host * between(chance, 0.2, 4)))
    return main(launch(kernel), SYNC, op("host", host), STEP), Actor("other", other, OTHER)


@shape
def _bursts(chance: Random) -> tuple[Actor, ...]:
    kernel, count = between(chance, 500, 5000), chance.randint(5, 60)
    request = (op("receive", 0), op("host", kernel * between(chance, 0.2, 2)), launch(kernel), SYNC, STEP)
    burst = (op("loop", count), op("send", 0), op("end"), op("pause", kernel * count * between(chance, 0.2, 4)))
    return main(*request), Actor("client", burst, CLIENT, child=True)


@shape
def _fork_join(chance: Random) -> Actor:
    kernel = between(chance, 300, 4000)
    step = [launch(kernel / 4), op("record", 0, 0)]
    for stream in range(1, chance.randint(3, 5)):
        step += [op("await", 0, stream), launch(kernel * chance.uniform(0.5, 1), stream=stream)]
        step += [op("record", stream, stream), op("await", stream, 0)]
    step += [launch(kernel / 4), *chance.choice([(), (SYNC,)]), op("host", kernel * between(chance, 0.2, 3)), STEP]
    return main(*step)


@shape
def _logs_now_and_then(chance: Random) -> Actor:
    host, kernel = between(chance, 100, 3000), between(chance, 100, 3000)
    return main(op("loop", chance.randint(3, 100)), op("host", host), launch(kernel), STEP, op("end"), READ_BACK)


@shape
def _uneven_loaders(chance: Random) -> tuple[Actor, ...]:
    kernel = between(chance, 1000, 8000)
    step = (op("receive", 0), launch(kernel), op("receive", 1), launch(kernel), *chance.choice([(), (SYNC,)]), STEP)
    slow = loader(kernel * between(chance, 0.5, 5), 1, "slow")
    return main(*step), loader(kernel * between(chance, 0.1, 1)), slow


@shape
def _growing_host(chance: Random) -> Schedule:
    kernel, host, wait = between(chance, 1000, 6000), between(chance, 300, 3000), chance.choice([(), (SYNC,)])
    grows, steps = between(chance, 2, 8), list[Operation]()
    for at in range(_STAIRS):
        took = host * grows ** (at / _STAIRS)
        steps += [op("loop", _PHASES_S * 1e6 / _STAIRS / (took + kernel)), op("host", took), launch(kernel), *wait]
        steps += [STEP, op("end")]
    return Schedule("", (main(*steps),), seconds=_PHASES_S)


@shape
def _warm_up(chance: Random) -> Schedule:
    work = between(chance, 1000, 8000)
    first = (op("compile", work * 2), op("load"), op("host", work / 2), launch(work), SYNC, STEP)
    steady = (op("host", work * between(chance, 0.1, 2)), launch(work), *chance.choice([(), (SYNC,)]), STEP)
    warm = (op("loop", _WARM_UP_S * 1e6 / (work * 3.5 + 4000)), *first, op("end"))
    return Schedule("", (main(*warm, op("loop", 1_000_000), *steady, op("end")),), seconds=_PHASES_S)


@shape
def _checkpoints(chance: Random) -> Schedule:
    work, size = between(chance, 500, 4000), between(chance, 20, 60)
    train = (op("loop", 2e6 / work), op("host", work / 3), launch(work), op("sync_event", 0), op("record", 0), STEP)
    saved = (op("loop", chance.randint(5, 30)), copy(size, True, True), op("host", 20000), op("end"))
    return Schedule("", (main(*train, op("end"), *saved),), seconds=_PHASES_S)


@shape
def _long_copies(chance: Random) -> Schedule:
    copies, kernels = between(chance, 0.2e6, 1.5e6), between(chance, 0.2e6, 1.5e6)
    host, from_gpu, blocks = chance.uniform(0, 0.8), chance.random() < 0.5, chance.random() < 0.3
    mib = 12 if blocks else 60
    step = [op("loop", copies / 1250), copy(mib, from_gpu, blocks), op("end")]
    step += [op("loop", kernels / 5000), op("host", 5000 * host), launch(5000), op("end"), SYNC, STEP]
    return Schedule("", (main(*step),), seconds=(copies + kernels) * 13e-6)


# Mixtures -------------------------------------------------------------------------------------------------------------
def _blocks(chance: Random, length: float) -> tuple[Operation, ...]:
    """Operations of a part of a step that takes about ``length`` microseconds."""
    kernel = between(chance, 2, 1000)
    count = max(1, min(800, round(length / kernel)))
    kinds: list[tuple[Operation, ...]] = [
        (op("host", length),),
        (op("host", length / 2), launch(length / 2)),
        (launch(kernel, count),),
        (launch(kernel, count), SYNC),
        (launch(length), op("poll")),
        (graph(kernel, min(count, 400)),),
        (op("loop", 8), op("host", length / 8), launch(length / 12), op("end")),
        (copy(length / 50, pageable=False, stream=1), op("record", 1, 1), op("await", 1, 0)),
        (copy(length / 120, pageable=True), launch(length / 3)),
        (READ_BACK, op("host", length)),
        (op("sleep", length),),
        (op("allocate", 4096), launch(length), op("free")),
        (op("pin", length / 300 * 1024), op("unpin")),
        (launch(length, stream=3), op("record", 3, 3), op("await", 3, 0), launch(length / 2)),
        (op("lock", 1), op("host", length), op("unlock", 1)),
        (launch(length / 2), op("callback", 3), op("get", 3)),
    ]
    return chance.choice(kinds)


def mixture(chance: Random) -> Schedule:
    """A step of random parts, sometimes with a loader, with a thread that holds a lock, or with rare slow steps."""
    length = between(chance, 300, 60000)
    parts = [_blocks(chance, length * between(chance, 0.1, 1)) for _ in range(chance.randint(2, 4))]
    step = [operation for part in parts for operation in part]
    if not any(operation.kind in ("launch", "graph") for operation in step):
        step.append(launch(length / 3))
    actors: list[Actor] = []
    if chance.random() < 0.25:
        step.insert(0, op("receive", 0))
        actors.append(loader(length * between(chance, 0.3, 2)))
    if any(operation.kind == "lock" for operation in step):
        held = (op("lock", 1), op("host", length * chance.random()), op("unlock", 1), op("sleep", length))
        actors.append(Actor("holder", held, OTHER))
    end = [*chance.choice([[], [SYNC], [op("sync_device")]]), STEP]
    step += end
    if chance.random() < 0.2:
        step = [op("loop", chance.randint(10, 50)), *step, op("end"), op("host", length * 10)]
    return Schedule("mixture", (main(*step), *actors), noise=chance.choice([3, 10, 30, 90]))


def schedule(seed: int, seconds: float = 6.0, gpus: int = 1) -> Schedule:
    """The schedule of a seed; with one GPU, no shape that needs two."""
    names = [name for name in SHAPES if gpus > 1 or name not in _TWO_GPUS]
    chance = Random(seed)
    made = mixture(chance) if seed % 2 else SHAPES[names[seed // 2 % len(names)]](chance)
    return replace(made, seed=seed, seconds=max(seconds, made.seconds))


# Really removed -------------------------------------------------------------------------------------------------------
def without(made: Schedule, cause: str) -> Schedule | None:
    """The schedule without a cause, to be run really; None where that cannot be written down."""
    actors = tuple(_without(actor, cause) for actor in made.actors)
    kept = tuple(actor for actor in actors if actor is not None)
    too_long = any(len(actor.operations) > MAX_OPERATIONS for actor in kept)
    return None if len(kept) < len(actors) or too_long else replace(made, actors=kept)


# Kinds of operations that ``without`` removes for each cause, and the role of the actors that lose them.
_REMOVED = {
    "host": (("host",), MAIN), "own sleep": (("sleep",), MAIN), "compiling": (("compile",), MAIN),
    "loading": (("load",), MAIN), "input": (("host",), FEEDS), "copies": (("copy",), MAIN),
    "kernels": (("launch", "graph"), MAIN), "allocation": (("allocate", "free", "pin", "unpin"), MAIN),
    "locks": (("lock", "unlock"), MAIN),
}  # fmt: skip


def _without(actor: Actor, cause: str) -> Actor | None:
    if cause == "waits":
        return _unrolled(actor) if actor.submits and actor.role == MAIN else actor
    if cause not in _REMOVED:
        return None
    kinds, role = _REMOVED[cause]
    operations = actor.operations
    if cause == "copies":  # What it waits for is another cause.
        blocks = {each: op("sync", each[3]) for each in operations if each.kind == "copy" and each[2]}
        operations = tuple(blocks.get(each, each) for each in operations)
    kept = tuple(operation for operation in operations if operation.kind not in kinds or actor.role != role)
    return replace(actor, operations=kept)


def _unrolled(actor: Actor) -> Actor | None:
    """An actor that waits for nothing but the end of the step ``STEPS_AHEAD`` before."""
    steps = sum(operation.kind == "step" for operation in actor.operations)
    if (
        steps != 1
        or actor.operations[-1] != STEP
        or any(each.kind in ("callback", "copy") for each in actor.operations)
    ):
        return None
    kept = tuple(operation for operation in actor.operations[:-1] if operation.kind not in WAITS)
    unrolled: list[Operation] = []
    for event in range(FIRST_SPARE_EVENT, FIRST_SPARE_EVENT + STEPS_AHEAD):
        unrolled += [op("sync_event", event), *kept, op("record", event), STEP]
    return replace(actor, operations=tuple(unrolled))
