"""The trial of aggressors beside a program: its turns, made by a program and aggressors of a clock of their own."""

from __future__ import annotations

from typing import cast

import pytest

from factories.beside import FakeAggressors
from factories.watch_moments import findings
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import GpuSharer, WatchFindings
from stallprobes.watch.beside.result import BesideOutcome, BesideRow, BesideUnit
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.result import ProcessDivision
from stallprobes.watch.division.steps import Step
from stallprobes.watch.division.turns import NO_AGGRESSOR, TurnTimes
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.reading.call_stack import StackFrame

MS = 1_000_000
S = 1_000 * MS
LOOK_NS = 100 * MS
GPU = "41414141-4141-4141-4141-414141414141"


class World:
    """A program whose steps take ``lengths`` ns beside each aggressor, and a trial that looks ten times a second."""

    def __init__(self, lengths: dict[str, int], monkeypatch: pytest.MonkeyPatch, regular: bool = True) -> None:
        self.now_ns = 1_000 * S
        self.lengths = lengths
        self.aggressors = FakeAggressors(lambda: self.now_ns)
        self.asked: list[tuple[str, list[int]]] = []
        self.turns = TurnTimes()
        self.begins = [self.now_ns]
        self.regular = regular
        self.look_ns = LOOK_NS
        monkeypatch.setattr("stallprobes.watch.live.beside_trial.time.monotonic_ns", lambda: self.now_ns)
        self.findings = self._findings()

    def make(self, uuid: str, pids: object, _cpus: int | None) -> FakeAggressors:
        self.asked.append((uuid, list(cast(list[int], pids))))
        return self.aggressors

    def step_begins(self, _step: Step | None) -> Int64s:
        return int64s(self.begins)

    def parts_in_turns(self, _threads: object, _device: int) -> dict[str, Int64s]:
        return {}

    def _findings(self) -> WatchFindings:
        found = findings(8)
        (process,) = found.processes
        step = Step(function="cuStreamSynchronize", bytes=0, thread=100, ns=1, low_ns=1, high_ns=1, steps=40)
        sequence = ProgramSequence(threads=(100,), device=0, step=step if self.regular else None)
        division = ProcessDivision(steady=True, start_up_ns=0, start_up={}, other_threads=0)
        return found.changed(processes=(process.changed(sequences=(sequence,), division=division, gpus=(GPU,)),))

    def lines_in_turns(self, _threads: object) -> dict[str, dict[StackFrame, Figure]]:
        return {}

    @property
    def divider(self) -> World:
        return self

    def analysis(self, _key: tuple[int, int]) -> ProcessAnalysis:
        return cast(ProcessAnalysis, self)

    def look(self, trial: BesideTrial) -> None:
        """Let a tenth of a second pass, and look."""
        self.now_ns += self.look_ns
        while self.begins[-1] + (length := self.lengths.get(self.aggressors.running, 14 * MS)) <= self.now_ns:
            self.begins.append(self.begins[-1] + length)
        trial.look(self.findings, self.analysis)
        if trial._starting is not None:
            trial._starting.join()

    def run(self, trial: BesideTrial, seconds: float) -> None:
        for _ in range(round(seconds * S / self.look_ns)):
            if trial.complete:
                return
            self.look(trial)


def effects(trial: BesideTrial) -> dict[str, BesideRow]:
    result = trial.result()
    assert result is not None
    return {row.aggressor: row for row in result.rows}


def test_the_effect_of_each_aggressor_is_known_after_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"spin": 28 * MS}, monkeypatch)
    trial = BesideTrial(world.make, ("spin", "dram"), complete_after=6)
    world.run(trial, 200)
    assert trial.complete
    rows = effects(trial)
    assert rows["spin"].ratio is not None
    assert rows["spin"].ratio.ratio == pytest.approx(2.0, rel=0.02)
    assert (rows["spin"].outcome, rows["dram"].outcome) == (BesideOutcome.SLOWER, BesideOutcome.SAME)
    assert {row.turns for row in rows.values()} == {6}
    assert world.asked == [(GPU, [process.pid for process in world.findings.processes])]
    # Off and on by turns, and off at the end.
    order = [name for _, name in world.aggressors.switched]
    assert order[::2] == [NO_AGGRESSOR] * len(order[::2])
    assert sorted(order[1::2]) == ["dram"] * 6 + ["spin"] * 6
    assert world.aggressors.running == NO_AGGRESSOR
    result = trial.result()
    assert result is not None
    assert 0 < result.on_ns < 60 * S
    trial.close()
    assert world.aggressors.stopped


def test_aggressors_are_no_processes_that_share_the_gpu_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",))
    world.run(trial, 1)
    (process,) = world.findings.processes
    sharers = tuple(GpuSharer(pid=pid, name="python3", watched=False) for pid in (4242, 4243))
    found = trial.with_effects(world.findings.changed(processes=(process.changed(sharers=sharers),)))
    assert [each.pid for each in found.processes[0].sharers] == [4243]
    assert found.beside == trial.result()


def test_one_that_had_no_turn_until_the_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    trial = BesideTrial(world.make, ("spin", "dram"), complete_after=6)
    while len(trial._turns) < 2:
        world.look(trial)
    trial.close()
    rows = effects(trial)
    assert set(rows) == {"spin", "dram"}
    assert sorted(row.reason for row in rows.values()) == ["1 of at least 3 turns", "no turn of it has ended"]


@pytest.mark.parametrize("ended", ["", "only 13.0 GiB were free."], ids=["closed", "ended by themselves"])
def test_the_time_of_a_turn_that_does_not_end_counts(monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    """A run beside an aggressor is never saved as one without."""
    world = World({}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",))
    while trial.running != "spin":
        world.look(trial)
    for _ in range(2):
        world.look(trial)
    world.aggressors.ended = ended
    if ended:
        world.look(trial)
    trial.close()
    result = trial.result()
    assert result is not None
    assert (result.on_ns, result.problem) == (
        (2 + bool(ended)) * world.look_ns,
        f"The aggressors were ended: {ended}" if ended else "",
    )


def test_turns_hold_whole_steps_that_began_after_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"spin": 28 * MS}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",), complete_after=3)
    world.run(trial, 60)
    for turn in trial._turns:
        wanted = 28 * MS if turn.aggressor == "spin" else 14 * MS
        assert set(turn.steps.tolist()) == {wanted}
        assert turn.end_ns - turn.begin_ns >= 600 * MS


def test_long_steps_make_long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"": 2 * S, "spin": 3 * S}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",), complete_after=3)
    world.run(trial, 300)
    row = effects(trial)["spin"]
    assert row.turns == 3
    assert row.ratio is not None
    assert row.ratio.ratio == pytest.approx(1.5, rel=0.05)
    assert all(len(turn.steps) >= 3 for turn in trial._turns)


def test_without_regular_steps_turns_have_a_length_and_waits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"spin": 28 * MS}, monkeypatch, regular=False)
    trial = BesideTrial(world.make, ("spin",), complete_after=4)
    world.run(trial, 5)
    assert trial.waits_for == "its steady state, and regular steps"
    world.run(trial, 60)
    result = trial.result()
    assert result is not None
    assert result.unit is BesideUnit.WAIT
    assert effects(trial)["spin"].ratio is not None
    assert effects(trial)["spin"].outcome is BesideOutcome.SLOWER


def test_a_program_that_hardly_waits_has_no_effect_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"": S, "spin": S}, monkeypatch, regular=False)
    trial = BesideTrial(world.make, ("spin",), complete_after=4)
    world.run(trial, 100)
    assert effects(trial)["spin"].outcome is BesideOutcome.UNKNOWN


def test_nothing_begins_before_the_steady_state(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    (process,) = world.findings.processes
    assert process.division is not None
    early = process.changed(division=process.division.changed(steady=False))
    world.findings = world.findings.changed(processes=(early,))
    trial = BesideTrial(world.make, ("spin",), complete_after=4)
    world.run(trial, 20)
    assert world.asked == []
    result = trial.result()
    assert result is not None
    assert result.problem == "No aggressor has run so far: the program has no steady state with regular steps yet."
    assert result.rows == ()
    trial.close()
    assert trial.result() == result


def test_an_aggressor_that_does_not_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    world.aggressors.never = ("dram",)
    trial = BesideTrial(world.make, ("spin", "dram"), complete_after=3)
    world.run(trial, 100)
    assert trial.complete
    rows = effects(trial)
    assert (rows["dram"].outcome, rows["dram"].reason) == (BesideOutcome.UNKNOWN, "it did not run")
    assert rows["spin"].turns == 3


def test_an_aggressor_that_this_machine_has_not_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    world.aggressors.refused = {"dram": "NVML is missing"}
    trial = BesideTrial(world.make, ("spin", "dram"), complete_after=3)
    world.run(trial, 60)
    assert effects(trial)["dram"].reason == "NVML is missing"
    assert "dram" not in [name for _, name in world.aggressors.switched]


def test_a_refusal_is_the_problem_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    world.aggressors.refusal = "the GPU is full."
    trial = BesideTrial(world.make, ("spin",), complete_after=3)
    world.run(trial, 5)
    assert trial.complete
    assert trial.problem == "No aggressor has run: the GPU is full."
    # A user who chooses again begins again.
    world.aggressors.refusal = ""
    trial.choose("spin", True)
    world.run(trial, 60)
    assert (trial.problem, effects(trial)["spin"].turns) == ("", 3)


def test_aggressors_that_end_by_themselves_end_the_trial_and_its_turns_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"spin": 28 * MS}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",))
    world.run(trial, 20)
    world.aggressors.ended = "only 3.0 GiB of the GPU's memory were free."
    world.look(trial)
    assert trial.problem == "The aggressors were ended: only 3.0 GiB of the GPU's memory were free."
    assert trial.running == NO_AGGRESSOR
    assert effects(trial)["spin"].turns > 3


def test_an_aggressor_that_is_switched_off_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    trial = BesideTrial(world.make)
    world.run(trial, 3)
    assert (trial.result(), world.asked) == (None, [])
    trial.choose("spin", True)
    while trial.running != "spin":
        world.look(trial)
    trial.choose_none()
    world.look(trial)
    assert world.aggressors.running == NO_AGGRESSOR
    before = len(trial._turns)
    world.run(trial, 10)
    assert len(trial._turns) == before


def test_a_pause_of_stallscope_is_in_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the time in which a signal had stopped it, and with it the aggressors, do not count."""
    world = World({"spin": 28 * MS}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",), complete_after=3)
    while trial.running != "spin" or trial._begin_ns is None:
        world.look(trial)
    world.begins += [world.begins[-1] + 14 * MS * (number + 1) for number in range(2000)]
    world.now_ns = world.begins[-1]
    world.run(trial, 60)
    assert {step for turn in trial._turns if turn.aggressor == "spin" for step in turn.steps.tolist()} == {28 * MS}


def test_all_time_in_which_an_aggressor_may_run_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that before it is known that it runs, and after it was switched off, where readings are rare."""
    world = World({"spin": 28 * MS}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",), complete_after=3)
    world.look_ns = 3 * S
    world.run(trial, 100)
    switches = [at for at, name in world.aggressors.switched if name == "spin"]
    ends = [at for at, name in world.aggressors.switched if name == NO_AGGRESSOR][1:]
    for begin, end in zip(switches, ends, strict=True):
        assert not [
            kind
            for kind, first, last in world.turns.last()
            if kind == NO_AGGRESSOR and first < end + 150 * MS and last > begin
        ]
        left = world.turns.without([(begin, end)], NO_AGGRESSOR, 0)
        assert list(left) == []


def test_the_end_of_the_program_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, monkeypatch)
    trial = BesideTrial(world.make, ("spin",))
    while trial.running != "spin":
        world.look(trial)
    (process,) = world.findings.processes
    world.findings = world.findings.changed(processes=(process.changed(ended=True),))
    world.look(trial)
    assert world.aggressors.running == NO_AGGRESSOR
