"""The rules of verdicts, on made-up histograms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallprobes.catalog import Placement, entries, on_null_stream, on_shared_stream
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import InFlight, Window
from stallprobes.model import SECONDARY, Channel, Phase, Probe
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.rules import TOO_SHORT_CAUSE, judge
from stallprobes.verdicts.verdict import Verdict

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
SECOND = 1_000_000_000


def probe(entry: str, place: Placement | None = None) -> Probe:
    return entries()[entry].probe(place)


def spread(middle_ns: int, tail_ns: int | None = None, count: int = 1000) -> Histogram:
    """``count`` values: 97 % at the middle, 3 % at the tail."""
    tail = tail_ns if tail_ns is not None else 2 * middle_ns
    return Histogram.of([middle_ns] * (count * 97 // 100) + [tail] * (count - count * 97 // 100))


def seen(
    of: Probe,
    now: Histogram,
    *quiets: Histogram,
    channel: Channel = WAIT,
    calls: int | None = None,
    flight_ns: int | None = None,
    error: str | None = None,
) -> Evidence:
    window = Window(
        {channel: now},
        iterations=now.count if calls is None else calls,
        duration_ns=SECOND,
        in_flight=None if flight_ns is None else InFlight(0, 0, flight_ns, 0),
        period_ns=of.period_ns,
    )
    return Evidence(of, window, tuple({channel: quiet} for quiet in quiets), error)


D2D = probe("d2d", Placement(SECONDARY))
SPIN = probe("spin")
HOST = probe("host")


def running(of: Probe = SPIN) -> Evidence:
    return Evidence(of, Window({CALL: spread(5_000, count=20)}, 20, SECOND))


def verdict_on(name: str, *all_seen: Evidence) -> Verdict:
    return next(one for one in judge(all_seen) if one.probe == name)


def test_a_copy_that_waits_for_a_slice_is_stalled_with_its_cause() -> None:
    found = verdict_on(D2D.name, seen(D2D, spread(2_378_000), spread(5_600)), running())
    assert (found.kind, found.phase, found.quantile) == ("stalled", Phase.WAIT, "p50")
    assert found.ratio is not None
    assert 400 < found.ratio < 450
    assert "time-slice" in found.cause
    assert "time-slice" in found.sentence
    assert "copy engine" in found.remedy


@pytest.mark.parametrize("now_ns", [10_900, 30_000])
def test_what_is_as_slow_after_as_between_is_unsure(now_ns: int) -> None:
    found = verdict_on(D2D.name, seen(D2D, spread(now_ns), spread(5_500), spread(now_ns - 400)), running())
    assert found.kind == "drift"
    assert "after the aggressors stopped" in found.sentence
    assert "time-slice" not in found.sentence


def test_what_was_faster_again_afterwards_is_not_said_to_be_as_slow() -> None:
    """Beside a baseline a little slower than the one before, the ratio is below the smallest one that counts."""
    found = verdict_on(D2D.name, seen(D2D, spread(8_400), spread(5_500), spread(5_700)), running())
    assert found.kind == "unsteady"
    assert (found.cause, found.short_cause) == TOO_SHORT_CAUSE
    assert "stopped" not in found.sentence


def test_a_slow_mode_that_quiet_has_too_is_no_more_than_slower() -> None:
    found = verdict_on(D2D.name, seen(D2D, spread(14_300), spread(3_900, 18_300)), running())
    assert found.kind == "slower"


def test_a_tail_is_seen_though_the_middle_is_quiet() -> None:
    launch = probe("launch", on_shared_stream())
    copy = probe("d2h-pageable-fresh", on_shared_stream())
    now = spread(2_500, 126_000_000, count=200)
    found = verdict_on(launch.name, seen(launch, now, spread(2_500, 6_000), channel=CALL), running(copy))
    assert (found.kind, found.quantile) == ("stalled", "p99")


def test_a_slower_middle_does_not_hide_a_stalled_tail() -> None:
    launch = probe("launch", on_shared_stream())
    now = spread(5_300, 137_000_000, count=100)
    copy = running(probe("d2h-pageable-fresh", on_shared_stream()))
    found = verdict_on(launch.name, seen(launch, now, spread(2_500, 6_000), channel=CALL), copy)
    assert (found.kind, found.quantile) == ("stalled", "p99")


def test_a_slower_host_control_is_the_machines_and_no_aggressors() -> None:
    found = verdict_on("host", seen(HOST, spread(8_000), spread(5_000), channel=CALL), running())
    assert found.kind == "host"
    assert "spin" not in found.sentence


def test_calls_of_one_turn_are_judged_apart() -> None:
    """A median of two humps falls on either; neither call is slower here."""
    relay = probe("host-relay")
    short, long = spread(2_200, 4_000), spread(7_700, 9_000)
    labels = {Channel(Phase.CALL, "D2H"): short, Channel(Phase.CALL, "H2D"): long}

    def channels(extra: Histogram) -> dict[Channel, Histogram]:
        return {**labels, CALL: short.merge(long).merge(extra)}

    one = Evidence(relay, Window(channels(spread(7_700, count=10)), 1000, SECOND), (channels(spread(2_200, count=10)),))
    (found,) = judge([one])
    assert found.kind == "quiet"


def test_a_few_far_calls_are_no_stall() -> None:
    now = Histogram.of([5_600] * 998 + [900_000] * 2)
    assert verdict_on(D2D.name, seen(D2D, now, spread(5_600)), running()).kind == "quiet"


def test_a_ratio_of_nanoseconds_is_no_stall() -> None:
    event = probe("event")
    now, quiet = spread(900), spread(250)
    assert verdict_on("event", seen(event, now, quiet, channel=CALL), running()).kind == "quiet"


def test_too_few_quiet_calls_give_no_ratio() -> None:
    found = verdict_on(D2D.name, seen(D2D, spread(2_000_000), Histogram.of([5_600] * 5)), running())
    assert (found.kind, found.ratio) == ("quiet", None)
    assert "too few" in found.sentence


def test_one_and_a_half_times_is_slower_and_not_stalled() -> None:
    assert verdict_on(D2D.name, seen(D2D, spread(11_000), spread(5_600)), running()).kind == "slower"


def test_the_machines_own_noise_is_named_as_such() -> None:
    host = seen(HOST, spread(9_000), spread(5_000), channel=CALL)
    found = verdict_on(D2D.name, seen(D2D, spread(11_000), spread(5_600)), running(), host)
    assert found.kind == "host"
    assert "host control" in found.sentence


def test_the_host_is_not_blamed_for_a_stall_it_did_not_see() -> None:
    host = seen(HOST, spread(9_000), spread(5_000), channel=CALL)
    assert verdict_on(D2D.name, seen(D2D, spread(2_378_000), spread(5_600)), running(), host).kind == "stalled"


def test_no_call_back_is_starved_with_its_age() -> None:
    launch = probe("launch", on_null_stream())
    copy = probe("d2h-pageable-warm", on_null_stream())
    hung = seen(launch, Histogram.empty(), spread(2_500), channel=CALL, flight_ns=1_300_000_000)
    found = verdict_on(launch.name, hung, running(copy))
    assert (found.kind, found.quantile) == ("starved", "in-flight")
    assert "0 calls returned" in found.sentence
    assert "1.30 s" in found.sentence
    assert found.now_ns == 1_300_000_000


def test_a_slow_pace_alone_is_not_starving() -> None:
    slow = entries()["d2d"].probe(Placement(SECONDARY), period_ns=500_000_000)
    assert not seen(slow, spread(5_600, count=2), spread(5_600)).starved


def test_a_failed_probe_says_so_first() -> None:
    found = judge([seen(D2D, spread(5_600), spread(5_600), error="d2d: cuMemcpyDtoDAsync returned 1 (…)"), running()])
    assert found[0].kind == "failed"


def test_gpu_time_booked_on_a_copy_is_told_from_the_copy() -> None:
    readback = probe("scalar-readback")
    labels = {"reduction kernel": 5_010_000, "D2H 4 bytes": 10_000}
    channels = {Channel(Phase.GPU, label): spread(ns, ns) for label, ns in labels.items()}
    channels[Channel(Phase.CALL, "D2H 4 bytes")] = spread(5_009_000, 5_009_000)
    (found,) = judge([Evidence(readback, Window(channels, 100, SECOND))])
    assert found.kind == "gpu-time"
    assert "reduction kernel" in found.sentence


def test_host_time_that_no_gpu_work_explains_is_overhead() -> None:
    first = probe("scalar-first-call")
    channels = {
        Channel(Phase.GPU, "D2H 4 bytes"): spread(10_000),
        Channel(Phase.CALL, "D2H 4 bytes"): spread(904_000),
    }
    (found,) = judge([Evidence(first, Window(channels, 100, SECOND))])
    assert found.kind == "overhead"


def test_another_victims_time_slices_are_a_cause_where_no_aggressor_is() -> None:
    launch = seen(probe("launch"), spread(338_000), spread(5_000))
    found = verdict_on("launch", launch, seen(D2D, spread(2_378_000), spread(5_600)), running())
    assert "change-over" in found.cause
    alone = verdict_on("launch", launch, running())
    assert "knows no reason" in alone.cause


def test_one_streams_order_is_a_cause_for_every_pair() -> None:
    launch = probe("launch", on_shared_stream())
    found = verdict_on(
        launch.name,
        seen(launch, spread(4_000_000), spread(5_000)),
        running(probe("d2h-pinned-large", on_shared_stream())),
    )
    assert "in order" in found.cause


def varying(of: Probe, now: Histogram, *p50s_ns: int, channel: Channel = CALL) -> Evidence:
    """Evidence with a baseline of windows."""
    baseline = Baseline.of([{channel: spread(ns)} for ns in p50s_ns])
    window = Window({channel: now}, now.count, SECOND, period_ns=of.period_ns)
    return Evidence(of, window, (baseline.channels,), variation=baseline)


LAUNCH = probe("launch")
STEADY = (5_000,) * 30
NOISY = (4_500, 5_000, 6_100, 9_000, 12_700) * 6


def test_without_an_aggressor_nothing_is_slower_but_the_machine_unsteady_with_its_range() -> None:
    found = verdict_on("launch", varying(LAUNCH, spread(12_700), 4_500, 6_100))
    assert (found.kind, found.quantile) == ("unsteady", "p50")
    low, high = found.range_ns or (0, 0)
    assert low == pytest.approx(4_500, rel=0.02)
    assert high == pytest.approx(12_700, rel=0.02)
    assert "p50 4.5–12.7 µs on this machine" in found.sentence
    assert verdict_on("launch", varying(LAUNCH, spread(5_500), *STEADY)).kind == "quiet"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (None, "other processes on this GPU are not known"),
        ((), "NVML lists no other process"),
        (("python3 (pid 12)",), "another process on this GPU: python3 (pid 12)."),
        (("python3 (pid 12)", "x (pid 13)", "y (pid 14)"), "python3 (pid 12) and 2 more."),
    ],
)
def test_a_stall_without_an_aggressor_says_so_and_what_nvml_lists(others: tuple[str, ...] | None, words: str) -> None:
    (found,) = judge([varying(LAUNCH, spread(400_000), *STEADY)], others)
    assert found.kind == "stalled"
    assert "No aggressor ran." in found.cause
    assert words in found.cause
    assert found.proof == "none"


def test_without_an_aggressor_three_times_a_few_microseconds_is_no_stall() -> None:
    assert verdict_on("launch", varying(LAUNCH, spread(16_000, 20_000), *STEADY)).kind == "unsteady"
    assert verdict_on("launch", varying(LAUNCH, spread(16_000, 20_000), *STEADY), running()).kind == "stalled"


def test_slower_needs_a_shift_beyond_the_spread_of_the_baseline() -> None:
    assert verdict_on("launch", varying(LAUNCH, spread(11_000), *NOISY), running()).kind == "quiet"
    assert verdict_on("launch", varying(LAUNCH, spread(11_000), *STEADY), running()).kind == "slower"


def test_the_detectable_ratio_grows_with_the_spread_and_falls_with_the_windows() -> None:
    def detectable(*p50s_ns: int) -> float:
        return verdict_on("launch", varying(LAUNCH, spread(5_000), *p50s_ns), running()).detectable or 0.0

    assert detectable(*NOISY) > detectable(5_000, 5_000) > detectable(*STEADY) > 1.5


def test_a_known_cause_is_proven_by_rule_and_an_unknown_one_by_nothing() -> None:
    assert verdict_on(D2D.name, seen(D2D, spread(2_378_000), spread(5_600)), running()).proof == "rule"
    event = seen(probe("event"), spread(90_000), spread(3_000), channel=CALL)
    assert verdict_on("event", event, running()).proof == "none"


def test_a_paused_machine_starves_the_host_control_too_and_is_host_noise() -> None:
    stopped = Window({CALL: Histogram.empty()}, 0, SECOND, InFlight(0, 0, 900_000_000, 0), period_ns=1_000_000)
    both = [Evidence(one, stopped, ({CALL: spread(5_000)},)) for one in (LAUNCH, HOST)]
    assert {one.kind for one in judge(both)} == {"host"}


def test_a_busy_machine_interrupts_threads_at_moments_of_their_own() -> None:
    """12 of 1000 launches were interrupted, and 8 calls of the host control: its p99 shows none of them."""
    late = Histogram.of([5_000] * 988 + [4_000_000] * 12)
    control = Histogram.of([6_000] * 992 + [4_000_000] * 8)
    found = verdict_on("launch", varying(LAUNCH, late, *STEADY), varying(HOST, control, *[6_000] * 30))
    assert found.kind == "host"
    calm = varying(HOST, Histogram.of([6_000] * 1000), *[6_000] * 30)
    assert verdict_on("launch", varying(LAUNCH, late, *STEADY), calm).kind == "stalled"


def test_a_thread_that_often_lost_its_cpu_while_polling_explains_a_tail_and_no_median() -> None:
    """12 of 1000 calls of 7 µs were late; of 150 ms of polling, as large a share was lost as of the calls."""
    late = Histogram.of([7_000] * 988 + [300_000] * 12)

    def kind(now: Histogram, pauses: int, length_ns: int = 300_000) -> str:
        paused_ns = pauses * length_ns
        window = Window({CALL: now}, 1000, SECOND, period_ns=1_000_000, polled_ns=150_000_000, paused_ns=paused_ns)
        usual = {CALL: Histogram.of([7_000] * 995 + [9_000] * 5)}
        return str(verdict_on("launch", Evidence(probe("launch"), window, (usual,)), running(probe("alloc-free"))).kind)

    assert kind(late, 100) == "host"
    assert kind(late, 2) == "stalled"
    # Each of them too short to make a call so late.
    assert kind(late, 100, 25_000) == "stalled"
    assert kind(late, 0) == "stalled"
    assert kind(Histogram.of([300_000] * 1000), 100) == "stalled"


def after_idle(entry: str, now_ns: int, baseline_ns: int, channel: Channel = CALL) -> Evidence:
    """Four calls, one a second, of a probe whose baseline has one each millisecond."""
    of = entries()[entry].probe(period_ns=SECOND, baseline_period_ns=1_000_000)
    return seen(of, Histogram.of([now_ns] * 4), spread(baseline_ns), spread(baseline_ns), channel=channel)


def test_what_is_slow_after_idle_times_is_slower_than_its_baseline_and_not_the_machines_variation() -> None:
    wait = verdict_on("launch", after_idle("launch", 400_000, 5_000, WAIT), after_idle("host", 5_000, 5_000))
    assert (wait.kind, wait.proof) == ("stalled", "rule")
    assert "after 1.00 s without a call" in wait.head
    assert "clocks" in wait.cause
    call = verdict_on("launch", after_idle("launch", 8_000, 4_000), after_idle("host", 5_000, 5_000))
    assert (call.kind, call.phase) == ("slower", Phase.CALL)
    assert "on the host" in call.cause


@pytest.mark.parametrize(
    ("late", "kind"),
    # Of the quiet calls, 2 % or 10 % take as long as those after idle times: rare calls of a busy machine, or a mode.
    [(0.02, "stalled"), (0.1, "slower")],
)
def test_after_idle_times_rare_late_calls_of_the_baseline_hide_no_stall_and_a_mode_is_none(
    late: float, kind: str
) -> None:
    busy = Histogram.of([5_000] * round(1000 * (1 - late)) + [60_000] * round(1000 * late))
    idle = after_idle("launch", 40_000, 5_000)
    found = verdict_on("launch", replace(idle, baselines=({CALL: busy}, {CALL: busy})))
    assert (found.kind, found.quantile) == (kind, "p50")


def test_after_idle_times_the_median_is_compared_with_both_baselines_together() -> None:
    idle = after_idle("launch", 37_000, 5_000)
    found = verdict_on("launch", replace(idle, baselines=({CALL: spread(5_000)}, {CALL: spread(13_000)})))
    assert (found.kind, found.quantile) == ("stalled", "p50")
    # Without a longer idle time the slower baseline counts.
    series = replace(idle, probe=LAUNCH, baselines=({CALL: spread(5_000)}, {CALL: spread(13_000)}))
    assert verdict_on("launch", series, running()).kind == "slower"


def test_the_hosts_own_wake_up_is_not_blamed_on_the_gpu() -> None:
    slow_host = after_idle("host", 60_000, 5_000)
    launch = verdict_on("launch", after_idle("launch", 70_000, 5_000, WAIT), slow_host)
    assert launch.kind == "host"
    assert "after the same idle time" in launch.cause
    control = verdict_on("host", slow_host)
    assert control.kind == "host"
    assert "not the GPU" in control.cause
    assert "idle states of the CPU" in control.remedy


def test_in_its_baselines_period_such_a_probe_is_judged_like_any_other() -> None:
    of = entries()["launch"].probe(period_ns=SECOND, baseline_period_ns=1_000_000)
    slow = seen(of, spread(9_000), spread(5_000), channel=CALL)
    in_series = replace(slow, window=replace(slow.window, period_ns=1_000_000))
    assert not in_series.idling
    assert verdict_on("launch", in_series).kind == "unsteady"
