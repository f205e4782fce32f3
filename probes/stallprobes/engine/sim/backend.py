"""Backend of the simulated GPU: executes programs on the simulated machine in virtual time, with its sensors."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from stallprobes.engine.backend import (
    Options,
    ProbeFailure,
    check_profilers,
    failed_op,
    for_each,
    timeline_refusal,
)
from stallprobes.engine.board import Board
from stallprobes.engine.sim.clock import EPOCH_NS, NEVER
from stallprobes.engine.sim.device import SimGpu, Simulation, us
from stallprobes.engine.sim.host_thread import TEXTS
from stallprobes.engine.sim.machine import SimMachine
from stallprobes.engine.sim.parameters import SensorParameters
from stallprobes.engine.sim.probe_thread import SimProbeThread
from stallprobes.engine.sim.profile import ProfileError, load
from stallprobes.engine.sim.timeline import SimTimeline
from stallprobes.engine.slots import STEP_NS, SlotWriter
from stallprobes.errors import EXIT_USAGE, BackendError
from stallprobes.machine.simulated_telemetry import SENSORS
from stallprobes.model import MIB, Probe, op_name
from stallprobes.native.layouts.board import ProbeState
from stallprobes.records.timeline import TimelineStatus

# Shortest virtual time (ns) between two updates of the simulated GPU's sensors.
_WINDOW_NS = 200_000_000
# Step (ns) in which the simulation advances virtual time. After each step, the simulation writes the time into the
# memory that engine and session share (the board).
_STEP_NS = 5_000_000


class GpuSensors:
    """Computes the values of one GPU from its engines' busy time, at most once each 0.2 s of virtual time.

    Power follows the utilization, and the temperature the power, each with a first-order lag. A real GPU's power also
    depends on what the kernels compute.
    """

    def __init__(self, gpu: SimGpu, parameters: SensorParameters, now: int) -> None:
        self._gpu = gpu
        self._parameters = parameters
        self._at = now
        self._counts = gpu.work_counts()
        self._total_bytes = gpu.free_bytes
        self._power_w = parameters.idle_w
        self._temperature_c = parameters.idle_c
        self.numbers = self._numbers(0.0, 0, 0, 0.0, 0.0)

    def update(self, now: int) -> bool:
        """Compute the values of the time since the last update; whether enough time had passed."""
        span = now - self._at
        if span < _WINDOW_NS:
            return False
        before, self._counts, self._at = self._counts, self._gpu.work_counts(), now
        busy_ns, to_gpu, to_host, sm_ns, thread_ns = (new - old for new, old in zip(self._counts, before, strict=True))
        share = min(max(busy_ns / span, 0.0), 1.0)
        part = self._parameters
        aim_w = part.idle_w + share * (part.busy_w - part.idle_w)
        self._power_w += (aim_w - self._power_w) * -math.expm1(-span / (1e9 * part.power_lag_s))
        aim_c = part.idle_c + (self._power_w - part.idle_w) * part.c_per_w
        self._temperature_c += (aim_c - self._temperature_c) * -math.expm1(-span / (1e9 * part.temperature_lag_s))
        machine = self._gpu.profile.machine
        self.numbers = self._numbers(
            share,
            round(to_gpu * 1e6 / span),
            round(to_host * 1e6 / span),
            min(sm_ns / (span * machine.sms), 1.0),
            min(thread_ns / (span * self._gpu.threads), 1.0),
        )
        return True

    def _numbers(
        self, share: float, to_gpu_kb_s: int, to_host_kb_s: int, active: float, occupancy: float
    ) -> tuple[int, ...]:
        """The numbers in the order of ``machine.simulated_telemetry.SENSORS``."""
        part = self._parameters
        used = self._total_bytes - self._gpu.free_bytes + self._gpu.graphics.contexts * round(part.context_mib) * MIB
        return (
            round(100 * share),
            round(part.sm_mhz),
            round(part.memory_mhz),
            round(1000 * self._power_w),
            round(1000 * part.limit_w),
            round(self._temperature_c),
            used,
            self._total_bytes,
            to_gpu_kb_s,
            to_host_kb_s,
            round(100 * 100 * active),
            round(100 * 100 * occupancy),
        )


class SimBackend:
    """Backend of the simulated GPU. Time passes only in ``start``, ``advance`` and ``stop``, after ``prepare``."""

    virtual = True
    _simulation: Simulation
    _machine: SimMachine
    _board: Board
    _sensors: GpuSensors
    _slots: SlotWriter
    _timeline: SimTimeline

    def __init__(self) -> None:
        self._threads: list[SimProbeThread] = []
        self._reported: set[str] = set()
        self._switched_at = EPOCH_NS
        self._slot_due = NEVER

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Create the machine and all resources of the probes.

        Raises BackendError (EXIT_USAGE) if the profile or a parameter is wrong, Unsupported if the machine lacks
        something that a probe needs.
        """
        try:
            profile = load(options.profile, options.sim_set)
        except ProfileError as error:
            raise BackendError(EXIT_USAGE, str(error)) from error
        check_profilers(probes, options)
        self._simulation = simulation = Simulation.of(profile)
        memory_bytes = simulation.gpus[0].free_bytes
        self._sensors = GpuSensors(simulation.gpus[0], profile.sensors, simulation.clock.now)
        board.header.sensors[: len(SENSORS)] = self._sensors.numbers
        self._machine = machine = SimMachine(simulation, options.watchdog_ns, options.max_memory)
        self._board = board
        self._timeline = SimTimeline(board, simulation.gpus, timeline_refusal(probes))
        for_each(probes, lambda probe: self._threads.append(machine.thread(probe, board[probe.name], options.seed)))
        self._slots = SlotWriter(probes, board, options.together)
        board.header.clock_ns = simulation.clock.now
        return {
            "backend": "simulated",
            "gpu": f"{profile.machine.title} (SIMULATED)",
            "gpu_model": profile.machine.title,
            "driver": f"{profile.machine.driver} (SIMULATED)",
            "cuda": f"{profile.machine.cuda} (SIMULATED)",
            "memory_bytes": memory_bytes,
            "profile": profile.label,
            "profile_source": profile.source,
            "seed": options.seed,
            "sim_set": dict(options.sim_set),
            "devices": [
                {"name": f"{profile.machine.title} (SIMULATED)", "index": gpu.index, "uuid": None, "pci": None}
                for gpu in simulation.gpus
            ],
            "contexts": self._machine.contexts,
        }

    def start(self) -> None:
        """Run the setup of all threads, one at a time; on return each is parked or has failed."""
        clock = self._simulation.clock
        for number, thread in enumerate(self._threads):
            thread.trace(self._timeline, clock.process(thread.run()), number)
            clock.run(until=thread.settled)
        self._publish()

    def poll(self) -> list[ProbeFailure]:
        """The probes that failed since the last call."""
        failures = []
        for thread in self._threads:
            if thread.words.state == ProbeState.ERROR and thread.probe.name not in self._reported:
                self._reported.add(thread.probe.name)
                op = failed_op(thread.probe.program, thread.words.error_op)
                code = thread.words.error_code
                failures.append(ProbeFailure(thread.probe.name, op_name(op), code, TEXTS.get(code, "0 was expected")))
        return failures

    def advance(self, ns: int) -> None:
        """Advance virtual time by ``ns``. A switch of a probe takes effect after at most 5 ms of it."""
        clock = self._simulation.clock
        until = clock.now + ns
        while clock.now < until:
            self._switch(self._simulation)
            clock.run(until=min(until, clock.now + _STEP_NS))
            self._publish_machine()
        self._publish()

    def _switch(self, simulation: Simulation) -> None:
        quits = simulation.quit
        changed = [thread for thread in self._threads if (thread.words.run != 0) is not thread.was_on or quits]
        if not changed:
            return
        self._update_slots()
        # On a real machine a session that sleeps between two switches is late by a random time, which determines the
        # phase between the schedules of two probes.
        parameters = simulation.profile.locks
        late = min((simulation.clock.now - self._switched_at) * parameters.switch_drift, us(parameters.switch_most_us))
        self._switched_at = simulation.clock.now
        for thread in changed:
            thread.notify_switch(round(late))

    def _update_slots(self, _: object = None) -> None:
        """Open and close slots, and schedule the next time to do so."""
        simulation = self._simulation
        now = simulation.clock.now
        if not self._slots.needed or simulation.quit:
            return
        if self._slots.update(now):
            for thread in self._threads:
                thread.notify_slot()
        due = self._slots.due_ns
        if self._slots.not_alone:
            due = min(now + STEP_NS, NEVER if due is None else due)
        if due is not None and not now < self._slot_due <= due:
            self._slot_due = due
            simulation.clock.call_at(due, self._update_slots)

    def switch_timeline(self, on: bool) -> None:
        """Switch the timeline, which takes effect at once."""
        self._timeline.switch(on, self._simulation.clock, self._machine.engine_contexts)

    def timeline(self) -> TimelineStatus | None:
        """The state of the timeline."""
        return self._timeline.status

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and let the threads end; True if all ended within ``deadline_s`` of wall-clock time."""
        self._simulation.quit = True
        self._machine.open_gates()
        latest = time.monotonic() + deadline_s
        clock = self._simulation.clock
        while not self._ended() and clock.peek() < NEVER and time.monotonic() < latest:
            self.advance(_STEP_NS)
        return self._ended()

    def _ended(self) -> bool:
        return all(thread.words.state in (ProbeState.ENDED, ProbeState.ERROR) for thread in self._threads)

    def _publish_machine(self) -> None:
        """Write the clock and the sensors to the board."""
        now = self._simulation.clock.now
        self._board.header.clock_ns = now
        if self._sensors.update(now):
            self._board.header.sensors[: len(SENSORS)] = self._sensors.numbers

    def _publish(self) -> None:
        self._publish_machine()
        for thread in self._threads:
            thread.publish()
        self._timeline.collect(self._simulation.clock.now)


# What the engine makes.
create = SimBackend
