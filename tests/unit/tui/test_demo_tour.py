"""The course of the demo on a simulated GPU in virtual time: its steps, its keys, and what it finds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from factories.virtual_demo import STEP_S, VirtualDemo
from stallprobes.demo import NOT_SHOWN, DemoPhase, steps
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.report import demo_text
from stallscope.report.columns import display_width
from stallscope.report.text import TextWriter
from stallscope.tui.demo.tour import FINALE_STEPS, DemoTour

# The five reports; one of them needs two GPUs.
ALL = (
    "secondary-context-d2d",
    "peer-copy-behind-kernel",
    "pageable-d2h-vs-launch",
    "scalar-readback",
    "default-stream-gate",
)
REPORTED = ("secondary-context-d2d", "pageable-d2h-vs-launch", "scalar-readback", "default-stream-gate")
TWO = ("secondary-context-d2d", "scalar-readback")
OpenDemo = Callable[..., VirtualDemo]


def tour_of(*names: str, seconds: float = 1.0, loop: bool = False) -> DemoTour:
    return DemoTour((patterns()[name] for name in names or ALL), seconds, loop)


@pytest.fixture
def demo() -> Iterator[OpenDemo]:
    """Start the demo of patterns; its engine ends with the test."""
    opened: list[VirtualDemo] = []

    def start(*names: str, loop: bool = False, machine: str = "2", lost: str = "", failing: str = "") -> VirtualDemo:
        opened.append(VirtualDemo(tour_of(*names, loop=loop), machine=machine, lost=lost, failing=failing))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def whole() -> Iterator[VirtualDemo]:
    """The demo of five patterns on a machine with one GPU, at its end."""
    one = VirtualDemo(tour_of(), machine="1")
    one.run()
    yield one
    one.close()


def written(one: VirtualDemo, width: int, ascii: bool = False) -> str:
    text = io.StringIO()
    demo_text.write_demo(TextWriter(text, width=width, ascii=ascii), one.tour.machine, one.tour.outcomes.values())
    return text.getvalue()


def test_it_goes_through_all_patterns_and_skips_what_the_machine_does_not_support(whole: VirtualDemo) -> None:
    outcomes = whole.tour.outcomes
    assert tuple(outcomes) == ALL
    assert [name for name, outcome in outcomes.items() if outcome.skipped] == ["peer-copy-behind-kernel"]
    assert not whole.tour.problem


FIRST = {(step.pattern.name, step.phase): step.variant.name for step in steps(patterns().values())}


@pytest.mark.parametrize("name", REPORTED)
def test_each_stall_is_found_with_its_cause_and_the_remedy_ends_it(whole: VirtualDemo, name: str) -> None:
    outcome = whole.tour.outcomes[name]
    assert outcome.stalled.kind in (VerdictKind.STALLED, VerdictKind.STARVED, VerdictKind.GPU_TIME)
    assert outcome.stalled.cause
    assert outcome.stalled.ratio is not None
    assert outcome.stalled.ratio > 100
    assert outcome.stalled.now_ns is not None
    assert outcome.remedied_ns is not None
    assert outcome.remedied_ns * 100 < outcome.stalled.now_ns
    assert (outcome.stall, outcome.remedy) == (FIRST[name, DemoPhase.STALL], FIRST[name, DemoPhase.REMEDY])


def test_quiet_comes_first_then_the_stall_in_the_same_engine_then_the_remedy(whole: VirtualDemo) -> None:
    first = REPORTED[0]
    shown = [(variant, on) for name, variant, on in whole.shown if name == first]
    # The engine of the quiet step is the one with which the source begins.
    assert shown == [("kernel-other-context", True), ("kernel-same-context", True)]
    second = [(variant, on) for name, variant, on in whole.shown if name == REPORTED[1]]
    assert second == [("warm-same-stream", False), ("warm-same-stream", True), ("pinned-other-stream", True)]
    assert whole.shown[-1][2] is False


def test_the_table_has_what_was_found_beside_what_was_reported(whole: VirtualDemo) -> None:
    lines = written(whole, 160).splitlines()
    assert lines[0] == "SIMULATED NVIDIA H200"
    assert lines[1].split() == ["pattern", "step", "latency"]
    at = next(number for number, line in enumerate(lines) if line.startswith("secondary-context-d2d  "))
    quiet, stall, remedy = (line.split() for line in lines[at : at + 3])
    assert (quiet[1], stall[0], remedy[0], remedy[-1]) == ("quiet", "stall", "remedy", "kernel-same-context")
    assert lines[at + 1].endswith("reported ×1412 (V100)")
    text = " ".join(written(whole, 160).split())
    assert "As code: `stallscope explain secondary-context-d2d`." in text
    assert "GPU's graphics engine runs one context at a time" in text
    assert "Skipped, because this machine does not support them" in text
    assert "peer-copy-behind-kernel: " in text
    assert all(name in text for name in ALL)


@pytest.mark.parametrize("width", [60, 76, 120, 160])
def test_the_table_keeps_within_the_terminal(whole: VirtualDemo, width: int) -> None:
    assert all(display_width(line) <= width for line in written(whole, width).splitlines())
    assert written(whole, width, ascii=True).isascii()


def test_a_demo_that_measured_nothing_says_so() -> None:
    tour = tour_of()
    text = io.StringIO()
    demo_text.write_demo(TextWriter(text, width=80), tour.machine, tour.outcomes.values())
    assert text.getvalue() == "The demo has measured nothing.\n"


def test_keys_go_forward_and_back(demo: OpenDemo) -> None:
    one = demo(*TWO)
    tour = one.tour

    def place() -> tuple[str, DemoPhase]:
        return tour.step.pattern.name, tour.step.phase

    first, second = TWO
    one.run(lambda: tour.step.is_shown_by(one.probe_set))
    shown = [place()]
    for _ in range(4):
        tour.move(1)
        shown.append(place())
    assert shown == [*((first, phase) for phase in DemoPhase), (second, DemoPhase.QUIET), (second, DemoPhase.STALL)]
    for expected in (shown[3], shown[2], shown[1], shown[0], shown[0]):
        tour.move(-1)
        assert place() == expected
    tour.go_to(DemoPhase.REMEDY)
    assert place() == (first, DemoPhase.REMEDY)
    tour.go_to()
    assert place() == (first, DemoPhase.QUIET)
    tour.end()
    assert tour.ended
    tour.go_to(DemoPhase.STALL)
    assert tour.ended
    tour.move(-1)
    assert place() == (second, DemoPhase.REMEDY)
    one.run()


def test_back_passes_over_patterns_that_were_skipped(demo: OpenDemo) -> None:
    one = demo("secondary-context-d2d", "peer-copy-behind-kernel", "scalar-readback", machine="1")
    one.run(lambda: one.tour.step.pattern.name == "scalar-readback")
    assert len(one.tour.patterns) == 3
    one.tour.move(-1)
    assert (one.tour.step.pattern.name, one.tour.step.phase) == ("secondary-context-d2d", DemoPhase.REMEDY)


def test_a_demo_of_which_nothing_is_possible_ends(demo: OpenDemo) -> None:
    one = demo("peer-copy-behind-kernel", machine="1", loop=True)
    one.run()
    one.tour.move(-1)
    assert one.tour.ended
    one.run(lambda: one.tour.finished)
    assert one.tour.outcomes["peer-copy-behind-kernel"].skipped


def test_time_passes_only_while_it_is_watched_and_not_paused(demo: OpenDemo) -> None:
    one = demo("scalar-readback")
    one.run(lambda: one.tour.step.phase is DemoPhase.STALL and one.tour.running)
    before = one.tour.elapsed_s
    for _ in range(30):
        one.step(watched=False)
    one.tour.paused = True
    for _ in range(30):
        one.step()
    assert one.tour.elapsed_s == before
    # A suspension of minutes is one tick.
    one.tour.paused = False
    one.now_s += 600
    one.step()
    assert one.tour.step.phase is DemoPhase.STALL or one.tour.elapsed_s <= before + 1.0


def test_a_remedy_is_compared_by_the_operation_that_stalled(whole: VirtualDemo) -> None:
    found = whole.tour.outcomes["scalar-readback"]
    assert found.stalled.label == "D2H 4 bytes"
    # The launch of the kernel, which is not the remedy's figure, takes longer than the copy that waits for nothing.
    assert found.remedied_ns is not None
    assert found.remedied_ns < 4_000


def test_what_was_found_stays_when_the_demo_goes_back_to_the_quiet_step(demo: OpenDemo) -> None:
    one = demo("secondary-context-d2d")
    tour = one.tour
    one.run(lambda: tour.step.phase is DemoPhase.REMEDY and tour.elapsed_s > 0.5)
    tour.move(-1)
    tour.move(-1)
    one.run(lambda: tour.step.phase is DemoPhase.QUIET and tour.elapsed_s > 0.5)
    tour.end()
    outcome = tour.outcomes["secondary-context-d2d"]
    assert outcome.stalled is not NOT_SHOWN
    assert outcome.remedied_ns is not None


def test_it_ends_after_the_table_and_a_loop_begins_again(demo: OpenDemo) -> None:
    one = demo("scalar-readback")
    one.run()
    at_s = one.now_s
    one.run(lambda: one.tour.finished)
    assert one.now_s - at_s == pytest.approx(FINALE_STEPS * one.tour.seconds, abs=2 * STEP_S)
    again = demo("scalar-readback", loop=True)
    again.run()
    again.run(lambda: not again.tour.ended)
    assert (again.tour.finished, again.tour.step.phase) == (False, DemoPhase.QUIET)
    again.run()
    assert again.tour.outcomes["scalar-readback"].remedied_ns is not None


def test_a_lost_engine_fails_its_pattern_and_the_demo_continues(demo: OpenDemo) -> None:
    one = demo(*TWO, lost="kernel-same-context")
    one.run()
    assert one.tour.problem == "secondary-context-d2d: the engine was killed"
    assert one.tour.outcomes["scalar-readback"].remedied_ns is not None
    # What was found before counts.
    assert one.tour.outcomes["secondary-context-d2d"].stalled is not NOT_SHOWN
    assert "failed: the engine was killed" in written(one, 160)


def test_a_failed_probe_fails_its_pattern(demo: OpenDemo) -> None:
    one = demo(*TWO, failing="kernel-other-context")
    one.run()
    assert "illegal address" in one.tour.problem
    assert list(one.tour.outcomes) == list(TWO)


def test_the_next_remedy_is_shown_where_the_first_one_is_not_possible(demo: OpenDemo) -> None:
    known = patterns()["scalar-readback"]
    impossible = replace(patterns()["peer-copy-behind-kernel"].variants[0], kind=known.variant("pinned").kind)
    for remedies, shown in (((impossible, known.variant("pinned")), "pinned"), ((impossible,), "")):
        pattern = replace(known, variants=(known.variant("pageable"), *remedies))
        one = VirtualDemo(DemoTour([pattern], 1.0), machine="1")
        one.run()
        remedy = one.tour.outcomes[pattern.name].remedy
        assert remedy == shown or remedy.startswith("not possible here: 2 GPUs are needed")
        assert ("not possible here" in written(one, 160)) == (not shown)
        one.close()


def test_the_first_engine_is_that_of_the_first_step_unless_it_needs_two_gpus() -> None:
    assert tour_of(*TWO).first_probe_set().variant == "kernel-other-context"
    first = tour_of("peer-copy-behind-kernel").first_probe_set()
    assert [probe.entry for probe in first.probes] == ["host"]
    assert first.backend != SIM
