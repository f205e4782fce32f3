"""On a real GPU: each pattern shows what was reported and measured, each remedy cures it, and the verdicts agree.

All times are compared with others of the same run. The patterns of the five reports; the others are in
test_framework_patterns.py.
"""

from __future__ import annotations

import json

import jsonschema
import pytest

from factories.measured_patterns import (
    CALL,
    DUE,
    LOUD,
    WAIT,
    aggressor,
    chosen,
    now,
    of_role,
    quiet,
    ran,
    says_stalled,
    slowest,
    times_quiet,
    undisturbed,
    variant,
    victim,
)
from stallprobes.catalog.streams import WATCHDOG_NS
from stallprobes.files import codec, schemas
from stallprobes.measurement.result import RUN_SCHEMA, RunProbe
from stallprobes.model import Channel, Kind, Phase, Role, Source
from stallprobes.patterns import patterns

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SECONDARY = "secondary-context-d2d"
PEER = "peer-copy-behind-kernel"
PAGEABLE = "pageable-d2h-vs-launch"
READBACK = "scalar-readback"
GATE = "default-stream-gate"


# All patterns.


@pytest.mark.parametrize("pattern", patterns())
def test_a_result_keeps_to_the_published_schema(pattern: str) -> None:
    document = codec.plain(ran(pattern))
    jsonschema.Draft202012Validator(schemas.schema(RUN_SCHEMA)).validate(document)
    json.dumps(document, allow_nan=False)
    assert document["backend"] == "cuda"


@pytest.mark.parametrize("pattern", patterns())
def test_every_variant_is_there_and_either_measured_or_unsupported_with_a_reason(pattern: str) -> None:
    assert [one.variant for one in ran(pattern).variants] == chosen(pattern)
    for found in ran(pattern).variants:
        assert (found.status == "ok") == (found.reason is None), (found.variant, found.reason)
        assert found.status in ("ok", "unsupported"), (found.variant, found.reason)


@pytest.mark.parametrize("pattern", patterns())
def test_every_aggressor_is_proven_to_run_and_no_probe_failed(pattern: str) -> None:
    assert ran(pattern).variants
    for found in ran(pattern).variants:
        for probe in found.probes:
            assert probe.error is None, (found.variant, probe.name)
            if probe.role is Role.AGGRESSOR:
                assert probe.state == "running", (found.variant, probe.name)
                assert probe.gpu_starts is None or probe.gpu_starts > 0, (found.variant, probe.name)


# Report 1.


def test_a_copy_in_a_second_context_waits_a_time_slice_while_a_kernel_runs_in_the_first() -> None:
    copy = victim(SECONDARY, "kernel-other-context")
    assert times_quiet(copy, WAIT) >= 100
    # The call itself returns as before: the time passes before the GPU starts the copy.
    assert now(copy, CALL) < now(copy, WAIT) / 50
    says_stalled(variant(SECONDARY, "kernel-other-context"), copy)


def test_a_copy_in_the_kernels_own_context_is_not_delayed() -> None:
    copy = victim(SECONDARY, "kernel-same-context")
    assert times_quiet(copy, WAIT) < 1.5
    assert copy.state not in LOUD


def test_a_second_context_alone_costs_a_copy_nothing() -> None:
    alone, beside = victim(SECONDARY, "secondary-alone"), victim(SECONDARY, "kernel-same-context")
    assert now(alone, WAIT) < 1.5 * quiet(beside, WAIT)
    assert alone.state not in LOUD


def test_a_copy_in_a_third_context_waits_two_time_slices() -> None:
    one, two = victim(SECONDARY, "kernel-other-context"), victim(SECONDARY, "third-context")
    assert 1.5 < now(two, WAIT, 99) / now(one, WAIT, 99) < 3
    says_stalled(variant(SECONDARY, "third-context"), two)


def test_copy_engines_do_not_wait_for_a_time_slice() -> None:
    copies = of_role(variant(SECONDARY, "copy-engine"), Role.VICTIM)
    assert len(copies) == 3
    for copy in copies:
        assert times_quiet(copy, WAIT) < 1.5, copy.name
        assert copy.state not in LOUD, copy.name


def test_prefer_overlap_stalls_like_the_plain_copy() -> None:
    plain, batch = victim(SECONDARY, "kernel-other-context"), victim(SECONDARY, "prefer-overlap")
    assert times_quiet(batch, WAIT) >= 100
    assert 0.5 < now(batch, WAIT) / now(plain, WAIT) < 2
    says_stalled(variant(SECONDARY, "prefer-overlap"), batch)


def test_a_green_context_shares_the_first_contexts_time_slice() -> None:
    copy = victim(SECONDARY, "green-context")
    assert times_quiet(copy, WAIT) < 1.5
    assert copy.state not in LOUD


# Report 2.


@pytest.mark.parametrize("name", ["staged", "host-relay-naive"])
def test_a_copy_between_gpus_waits_for_the_kernel_that_another_copy_is_queued_behind(name: str) -> None:
    copy = victim(PEER, name)
    assert max(times_quiet(copy, CALL), times_quiet(copy, WAIT)) >= 20
    says_stalled(variant(PEER, name), copy)


@pytest.mark.parametrize("name", ["direct", "idle-stream", "host-relay"])
def test_a_copy_between_gpus_does_not_wait_with_peer_access_an_idle_stream_or_a_relay(name: str) -> None:
    copy = victim(PEER, name)
    assert times_quiet(copy, WAIT) < 5
    assert times_quiet(copy, CALL) < 5
    assert not copy.starved


# Report 3.


@pytest.mark.parametrize("name", ["warm-same-stream", "warm-null-stream"])
def test_a_launch_on_the_stream_of_a_warm_pageable_copy_starves_and_its_row_is_not_empty(name: str) -> None:
    launch = victim(PAGEABLE, name)
    assert launch.starved
    assert launch.state == "STARVED"
    assert launch.in_flight_ns is not None
    assert launch.in_flight_op == "cuLaunchKernel"
    # What was waited counts as waited, though hardly a call returned.
    assert launch.phases[Phase.DUE].count > 10 * max(launch.phases[Phase.CALL].count, 1)
    assert slowest(launch, DUE) >= 100 * quiet(launch, DUE)
    says_stalled(variant(PAGEABLE, name), launch)
    assert any(one.kind == "starved" and one.quantile == "in-flight" for one in variant(PAGEABLE, name).verdicts)


@pytest.mark.parametrize("name", ["fresh-same-stream", "fresh-null-stream"])
def test_a_launch_on_the_stream_of_a_fresh_pageable_copy_takes_as_long_as_the_copy(name: str) -> None:
    launch, copy = victim(PAGEABLE, name), aggressor(PAGEABLE, name)
    assert slowest(launch, CALL) > 0.4 * now(copy, CALL)
    assert slowest(launch, CALL) >= 1000 * quiet(launch, CALL)
    says_stalled(variant(PAGEABLE, name), launch)


@pytest.mark.parametrize("name", ["warm-other-stream", "fresh-other-stream"])
def test_a_pageable_copy_on_another_stream_disturbs_launches_a_little_and_starves_none(name: str) -> None:
    launch = victim(PAGEABLE, name)
    assert not launch.starved
    assert times_quiet(launch, CALL) < 5


def test_a_pinned_copy_leaves_launches_on_another_stream_alone() -> None:
    launch = victim(PAGEABLE, "pinned-other-stream")
    assert undisturbed(variant(PAGEABLE, "pinned-other-stream"), launch, Phase.CALL, 2)
    assert launch.state not in LOUD


@pytest.mark.parametrize("name", ["pinned-same-stream", "pinned-null-stream"])
def test_behind_a_pinned_copy_on_one_stream_kernels_wait_and_launch_calls_do_not(name: str) -> None:
    launch, starved = victim(PAGEABLE, name), victim(PAGEABLE, name.replace("pinned", "warm"))
    assert not launch.starved
    assert now(launch, CALL) < slowest(starved, CALL) / 100


# Report 4.

READ = "D2H 4 bytes"
REDUCE = "reduction kernel"


def on_host(probe: RunProbe, label: str) -> float:
    return now(probe, Channel(Phase.CALL, label))


def on_gpu(probe: RunProbe, label: str) -> float:
    return now(probe, Channel(Phase.GPU, label))


def test_a_pageable_read_back_is_booked_the_time_of_the_kernel_before_it() -> None:
    reading = aggressor(READBACK, "pageable")
    assert on_host(reading, READ) >= 100 * on_gpu(reading, READ)
    assert on_host(reading, READ) == pytest.approx(on_gpu(reading, REDUCE), rel=0.1)
    kinds = {one.kind for one in variant(READBACK, "pageable").verdicts if one.probe == reading.name}
    assert "gpu-time" in kinds


def test_a_pinned_read_back_returns_at_once_and_the_time_stands_in_the_wait() -> None:
    reading = aggressor(READBACK, "pinned")
    assert on_host(reading, READ) * 50 < on_gpu(reading, REDUCE)
    assert now(reading, WAIT) > 0.5 * on_gpu(reading, REDUCE)
    assert not any(one.kind == "gpu-time" for one in variant(READBACK, "pinned").verdicts)


def test_a_scalar_that_stays_on_the_gpu_costs_the_host_little() -> None:
    reading = aggressor(READBACK, "on-device")
    labels = [op.op for op in reading.ops if op.phase is Phase.CALL]
    assert REDUCE in labels
    assert sum(on_host(reading, label) for label in labels) * 50 < on_gpu(reading, REDUCE)
    assert on_gpu(reading, REDUCE) == pytest.approx(on_gpu(aggressor(READBACK, "pageable"), REDUCE), rel=0.1)
    assert not any(one.kind == "gpu-time" for one in variant(READBACK, "on-device").verdicts)


def test_first_calls_cost_more_than_the_same_work_later() -> None:
    first, later = aggressor(READBACK, "first-call"), aggressor(READBACK, "pageable")
    loading = on_host(first, "cuModuleLoadData") + on_host(first, "final kernel")
    assert loading > 5 * on_host(later, "final kernel")


@pytest.mark.parametrize("name", ["first-call", "pageable", "pinned", "on-device"])
def test_a_read_backs_very_first_turn_is_kept_apart(name: str) -> None:
    reading = aggressor(READBACK, name)
    measured = [figures for figures in (*reading.phases.values(), *reading.ops) if figures.source is Source.HOST]
    assert all(figures.first_ns is not None for figures in measured)


# Report 5.


def test_the_gated_pageable_copy_holds_an_unrelated_launch_until_the_watchdog_opens_the_gate() -> None:
    launch = victim(GATE, "pageable")
    assert slowest(launch, CALL) >= 0.8 * WATCHDOG_NS
    says_stalled(variant(GATE, "pageable"), launch)


@pytest.mark.parametrize("name", ["pinned", "own-stream"])
def test_pinned_memory_or_a_stream_of_its_own_lets_the_launch_through(name: str) -> None:
    launch = victim(GATE, name)
    assert times_quiet(launch, CALL) < 10
    assert slowest(launch, CALL) < 0.1 * WATCHDOG_NS
    assert launch.state != "STARVED"


# Verdicts as a whole.


@pytest.mark.parametrize("pattern", patterns())
def test_every_stall_has_a_victim_that_a_verdict_names(pattern: str) -> None:
    assert ran(pattern).variants
    kinds = {"stalled", "starved", "gpu-time"}
    for found in ran(pattern).variants:
        if found.kind is Kind.STALL and found.status == "ok":
            sentences = "\n".join(one.sentence for one in found.verdicts)
            assert any(one.kind in kinds for one in found.verdicts), f"{found.variant}: {sentences}"
