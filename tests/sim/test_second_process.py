"""A second process on the simulated GPU: its contexts share the graphics engine, and it shares nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import stallprobes
from factories.recordings import WALL_S
from factories.simulated_machine import CALL, WAIT, machine, p50_us, program_probe
from factories.virtual_session import virtual_sessions
from stallprobes.catalog import Placement, entries
from stallprobes.model import Context, Op, Process, Word
from stallprobes.patterns.naming import parse_probe, probe_name
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.delay import DelayCause, delays_of_call
from stallprobes.traces.engine_gaps import foreign_gaps


def test_a_kernel_of_a_second_process_delays_as_one_of_a_second_context_does() -> None:
    def waits(kernel: str) -> tuple[list[int], list[int]]:
        spin = parse_probe(kernel, as_name="spin")
        seen = machine(parse_probe("launch"), parse_probe("d2d"), spin).run()
        return seen["launch"].channels[WAIT].counts.tolist(), seen["d2d"].channels[WAIT].counts.tolist()

    assert waits("spin@second-process") == waits("spin@secondary")


def test_the_second_process_shares_no_lock_and_no_context_with_the_first() -> None:
    made = machine(
        parse_probe("launch"), parse_probe("alloc-free", as_name="own"), parse_probe("alloc-free@second-process")
    )
    assert made.info["contexts"] == ["primary", "primary of the second process"]
    alone, beside, within = {"launch"}, {"launch", "alloc-free@second-process"}, {"launch", "own"}
    medians = []
    for names in (alone, beside, within):
        made.switch(False)
        made.switch(True, names)
        made.advance(50_000_000)
        medians.append(p50_us(made.window(300_000_000)["launch"], CALL))
    assert medians[1] < 1.2 * medians[0]
    assert medians[2] > 3 * medians[0]


def test_a_shared_word_belongs_to_one_process() -> None:
    word = Word("shared", shared=True)
    store = program_probe("store", [Op("native:store", (word, 7), phase=None)], context=None)
    made = machine(store, replace(store, name="other", program=replace(store.program, process=Process.SECOND)))
    words = [made.backend._machine._word(name, word) for name in ("store", "other")]
    assert words[0] is not words[1]
    made.switch(True, ["store"])
    made.advance(5_000_000)
    assert [one.value for one in words] == [7, 0]


def test_victims_of_two_processes_have_slots_of_their_own() -> None:
    first, other = parse_probe("launch"), parse_probe("launch@second-process")
    assert first.slot_group == (0, "primary")
    assert other.slot_group == (0, "primary of second-process")
    seen = machine(first, other).run()
    assert all(window.in_slots and p50_us(window, WAIT) < 8 for window in seen.values())


def test_the_placement_has_a_name_that_is_read_back() -> None:
    for name in ("spin@second-process", "d2d@second-process/null", "launch@second-process/shared"):
        probe = parse_probe(name)
        assert (probe.program.process, probe.context) == (Process.SECOND, "second-process")
        assert probe_name(probe) == name
    there = Placement(Context("primary", 1), process=Process.SECOND)
    assert entries()["launch"].probe(there).context == "second-process of GPU 2"


def test_the_timeline_shows_another_process_where_the_second_one_computes() -> None:
    """CUPTI records one process: of the second one there are no contexts and no work, only a gap."""
    with virtual_sessions():
        traces: list[TitledTrace] = []
        stallprobes.run(
            "second-process",
            variants=("other-process", "other-context"),
            seconds=0.3,
            backend="sim",
            trace_seconds=0.3,
            traced=traces.append,
        )
    process, context = (titled.trace for titled in traces)
    assert set(process.names.contexts.values()) == {"primary"}
    assert set(context.names.contexts.values()) == {"primary", "secondary"}
    spin = [probe.name for probe in process.probes].index("spin@second-process")
    assert spin not in process.work["probe"].tolist()
    assert len(foreign_gaps(process))
    assert not len(foreign_gaps(context))
    assert process.trigger is not None
    row = process.trigger_call()
    assert row is not None
    main = delays_of_call(process, row)[0].main()
    assert main is not None
    assert main.cause is DelayCause.PROCESS


def test_a_recorded_probe_keeps_its_process(tmp_path: Path) -> None:
    file = tmp_path / "second.rec"
    recorder = Recorder(file)
    probes = tuple(map(parse_probe, ("launch", "spin@second-process", "spin@secondary")))
    shown = Observation(
        wall_s=WALL_S,
        probe_set=ProbeSet(title="probes", probes=probes, backend=SIM),
        engine=EngineStatus(EngineCondition.STARTING),
    )
    recorder.put_blocking(shown, {})
    recorder.close(10.0)
    replayed = next(iter(Recording(file).play()))
    found = [probe.program.process for probe in replayed.probe_set.probes]
    assert found == [Process.ENGINE, Process.SECOND, Process.ENGINE]
