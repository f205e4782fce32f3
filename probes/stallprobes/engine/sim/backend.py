"""The backend in virtual time: executes programs on the simulated machine and fills the same board."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stallprobes.engine.backend import Options, Plant, Trouble, on_behalf_of
from stallprobes.engine.board import CLOCK_NS, ERROR_CODE, ERROR_OP, STATE, Board, ProbeState
from stallprobes.engine.sim.clock import EPOCH_NS, NEVER
from stallprobes.engine.sim.device import World, us
from stallprobes.engine.sim.host import TEXTS
from stallprobes.engine.sim.machine import SimMachine
from stallprobes.engine.sim.profile import ProfileError, load
from stallprobes.engine.sim.simulated_thread import Planted, SimulatedThread
from stallprobes.errors import EXIT_USAGE, BackendError
from stallprobes.model import Channel, Op, Probe, op_name

_STEP_NS = 5_000_000


class SimBackend:
    """Runs probes on a simulated GPU. Nothing happens but in ``start``, ``advance`` and ``stop``."""

    virtual = True

    def __init__(self) -> None:
        self._world: World | None = None
        self._machine: SimMachine | None = None
        self._board: Board | None = None
        self._threads: list[SimulatedThread] = []
        self._reported: set[str] = set()
        self._switched_at = EPOCH_NS

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Make the machine and everything the probes name on it.

        Raises BackendError (2) when the profile or a setting is wrong, Unsupported when the machine has not got
        what a probe needs.
        """
        try:
            profile = load(options.profile, options.sim_set)
        except ProfileError as error:
            raise BackendError(EXIT_USAGE, str(error)) from error
        self._world = world = World.of(profile)
        world.rings = options.rings
        memory_bytes = world.gpus[0].free_bytes
        self._machine = SimMachine(world, options.watchdog_ns, options.max_memory)
        self._board = board
        for probe in probes:
            with on_behalf_of(probe):
                self._threads.append(self._machine.iterations(probe, board[probe.name], options.seed))
        if options.plant is not None:
            self._sow(options.plant, board)
        board.header[CLOCK_NS] = world.clock.now
        return {
            "backend": "simulated",
            "gpu": f"{profile.machine.title} (SIMULATED)",
            "driver": f"{profile.machine.driver} (SIMULATED)",
            "cuda": f"{profile.machine.cuda} (SIMULATED)",
            "memory_bytes": memory_bytes,
            "profile": profile.label,
            "profile_source": profile.source,
            "seed": options.seed,
            "sim_set": dict(options.sim_set),
            "devices": [
                {"name": f"{profile.machine.title} (SIMULATED)", "index": gpu.index, "uuid": None, "pci": None}
                for gpu in world.gpus
            ],
            "contexts": self._machine.contexts,
        }

    def _sow(self, plant: Plant, board: Board) -> None:
        for thread in self._threads:
            if thread.probe.name == plant.victim and any(
                plant.aggressor == other.probe.name for other in self._threads
            ):
                channel = thread.probe.program.channels().index(Channel(plant.phase))
                words = board[plant.aggressor].words
                thread.plant(Planted(channel, words, plant.at_least_ns, plant.every))

    def start(self) -> None:
        """Run every setup, one after the other, until all threads are parked or have failed."""
        world = self._here()
        for thread in self._threads:
            world.clock.process(thread.live())
            world.clock.run(until=thread.settled)
        self._show()

    def poll(self) -> list[Trouble]:
        """Proofs to the board; the probes that stopped since the last call."""
        self._show()
        found = []
        for thread in self._threads:
            if thread.words[STATE] == ProbeState.ERROR and thread.probe.name not in self._reported:
                self._reported.add(thread.probe.name)
                op = _failed(thread.probe, thread.words[ERROR_OP])
                code = thread.words[ERROR_CODE]
                found.append(Trouble(thread.probe.name, op_name(op), code, TEXTS.get(code, "0 was expected")))
        return found

    def advance(self, ns: int) -> None:
        """Let ``ns`` of virtual time pass. Switches of probes are seen at least each 5 ms of it."""
        world = self._here()
        until = world.clock.now + ns
        while world.clock.now < until:
            self._switch(world)
            world.clock.run(until=min(until, world.clock.now + _STEP_NS))
            self._show()

    def _switch(self, world: World) -> None:
        changed = [thread for thread in self._threads if thread.changed]
        if not changed:
            return
        # On a real machine a session that counts seconds by sleeping is late when it switches the next probe on, and
        # that is how the schedules of two probes come to stand to each other.
        figures = world.profile.locks
        late = min((world.clock.now - self._switched_at) * figures.switch_drift, us(figures.switch_most_us))
        self._switched_at = world.clock.now
        for thread in changed:
            thread.switched(round(late))

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and let the threads come to their end, in as much virtual time as fits ``deadline_s``."""
        if self._world is None or self._machine is None:
            return True
        self._world.quit = True
        self._machine.open_gates()
        latest = time.monotonic() + deadline_s
        clock = self._world.clock
        while not self._ended() and clock.peek() < NEVER and time.monotonic() < latest:
            self.advance(_STEP_NS)
        return self._ended()

    def _ended(self) -> bool:
        return all(thread.words[STATE] in (ProbeState.ENDED, ProbeState.ERROR) for thread in self._threads)

    def _show(self) -> None:
        if self._board is not None:
            self._board.header[CLOCK_NS] = self._here().clock.now
        for thread in self._threads:
            thread.report()

    def _here(self) -> World:
        if self._world is None:
            raise RuntimeError("prepare comes first")
        return self._world


def _failed(probe: Probe, number: int) -> Op:
    """The op that ERROR_OP means: counted from 1 in ``ops``, from -1 down in ``setup``."""
    return probe.program.ops[number - 1] if number > 0 else probe.program.setup[-number - 1]


def create() -> SimBackend:
    """A fresh backend, for the engine."""
    return SimBackend()
