"""Results as JSON: every kind of result keeps to the published schema, and nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories import documents, runs
from stallprobes.engine import session
from stallprobes.files import codec, schemas
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.result import RUN_SCHEMA, RunProbe, RunResult
from stallprobes.model import Phase

RECORDED = Path(__file__).parents[2] / "gpu" / "recorded"
VALIDATOR = documents.validator(RUN_SCHEMA)


def document(result: RunResult) -> dict[str, Any]:
    """The document as it is after a way through text."""
    found: dict[str, Any] = json.loads(json.dumps(codec.plain(result), allow_nan=False))
    VALIDATOR.validate(found)
    return found


@pytest.mark.parametrize("name", schemas.names())
def test_the_shipped_schemas_are_schemas(name: str) -> None:
    schema = schemas.schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["enum"] == [name]


def test_a_schema_that_is_not_shipped_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        schemas.schema("stallscope.run/99")


@pytest.mark.parametrize("name", ["h200.json", "h200x2.json"])
def test_recorded_runs_keep_to_the_schema(name: str) -> None:
    recorded = codec.decoded((RECORDED / name).read_bytes(), RunResult)
    VALIDATOR.validate(document(recorded))


def test_every_kind_of_result_keeps_to_the_schema() -> None:
    found = document(runs.everything())
    assert [result["status"] for result in found["variants"]] == ["ok", "ok", "ok", "ok", "unsupported", "invalid"]


def test_what_is_really_measured_keeps_to_the_schema() -> None:
    result = measure.run(plan(selection(["host"]), seconds=0.5), backend="host")
    found = document(result)
    (variant,) = found["variants"]
    assert variant["status"] == "ok"
    (probe,) = variant["probes"]
    # The two are read one after the other, and the reader may lose its CPU in between: they need not be equal.
    assert probe["calls"] > 0
    assert probe["phases"]["call"]["count"] > 0
    assert probe["baseline"]["call"]["count"] > 0
    # No GPU took part, and the fingerprint says so.
    assert found["fingerprint"]["gpu"] is None
    assert "gpu" in found["fingerprint"]["unknown"]


def test_a_run_that_is_stopped_says_so_and_keeps_what_it_has() -> None:
    stopped = document(measure.run(plan(selection(["host"]), seconds=0.5), backend="host", stop=lambda: True))
    assert (stopped["interrupted"], stopped["variants"]) == (True, [])


def test_a_keyboard_interrupt_while_an_engine_starts_keeps_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: session.Session) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.Session, "start", start)
    result = measure.run(plan(selection(["host"]), seconds=0.5), backend="host")
    assert (result.interrupted, result.variants) == (True, ())


def test_an_interrupted_run_without_results_keeps_to_the_schema() -> None:
    assert document(runs.run(interrupted=True))["interrupted"] is True


def test_a_starved_probe_has_no_figures_but_its_age_and_the_time_it_waited() -> None:
    (probe,) = document(runs.run(runs.variant("starving", runs.starved())))["variants"][0]["probes"]
    assert probe["starved"] is True
    assert probe["in_flight_ns"] == 1_190_000_000
    assert probe["phases"]["call"] == {
        "source": "host",
        "count": 0,
        "first_ns": None,
        "p50_ns": None,
        "p90_ns": None,
        "p99_ns": None,
        "p999_ns": None,
        "max_ns": None,
        "histogram": [],
    }
    assert probe["phases"]["due"]["count"] == 1190
    assert probe["baseline"]["call"]["p50_ns"] is not None


def test_an_unsupported_variant_says_why_and_has_no_probes() -> None:
    unsupported = runs.variant("green-context", status="unsupported", reason="one GPU")
    (result,) = document(runs.run(unsupported))["variants"]
    assert (result["status"], result["reason"], result["probes"]) == ("unsupported", "one GPU", [])


def test_p999_waits_for_a_thousand_values() -> None:
    few, many = runs.stalled(), runs.probe("launch")
    probes = document(runs.run(runs.variant("v", few, many)))["variants"][0]["probes"]
    assert probes[0]["phases"]["wait"]["p999_ns"] is None
    assert probes[1]["phases"]["wait"]["p999_ns"] is not None


def test_the_histogram_comes_back_whole_and_the_figures_are_its_figures() -> None:
    original = runs.around(2_400_000, 500)
    written = runs.probe("d2d", channels={runs.WAIT: original}, baseline={})
    figures = codec.decoded(codec.encoded(written), RunProbe).phases[Phase.WAIT]
    assert figures.distribution == original
    assert (figures.p99_ns, figures.max_ns) == (round(original.percentile(99.0) or 0), original.max_ns)


def test_the_figures_of_several_probes_are_those_of_all_their_calls() -> None:
    parts = [runs.around(3_000, 500), runs.around(90_000, 700)]
    first, second = (runs.probe("spin", channels={runs.CALL: part}).phases[Phase.CALL] for part in parts)
    together = first.joined([second])
    assert together.distribution == parts[0].merge(parts[1])
    assert (together.count, together.max_ns) == (1200, parts[1].max_ns)
    assert together.first_ns is None


def test_the_first_call_stands_apart_from_the_rest() -> None:
    (probe,) = document(runs.run(runs.variant("v", runs.probe("launch"))))["variants"][0]["probes"]
    assert probe["phases"]["call"]["first_ns"] == 81_000
    assert probe["phases"]["call"]["max_ns"] < 81_000


def test_each_op_has_its_host_and_its_device_time() -> None:
    (probe,) = document(runs.run(runs.variant("v", runs.readback())))["variants"][0]["probes"]
    copies = {op["phase"]: op for op in probe["ops"] if op["op"] == "D2H 4 bytes"}
    assert set(copies) == {"call", "gpu"}
    assert copies["call"]["p50_ns"] > 100 * copies["gpu"]["p50_ns"]
    assert copies["call"]["first_ns"] == 904_000


def places(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from places(item)
    elif isinstance(value, list):
        for item in value:
            yield from places(item)


def test_the_schema_notices_every_key_that_is_missing_or_new() -> None:
    """What the schema promises, it also demands; only fingerprints differ from machine to machine."""
    found = document(runs.everything())
    free = (found["fingerprint"], found["fingerprint"]["unknown"])
    checked = 0
    for place in [p for p in places(found) if p not in free]:
        for key in [*place, "something new"]:
            kept = dict(place)
            if key in place and set(place) <= {str(phase) for phase in ("call", "wait", "start", "gpu", "due")}:
                continue
            place.pop(key, None) if key in kept else place.__setitem__(key, 1)
            assert not VALIDATOR.is_valid(found), (key, kept)
            place.clear()
            place.update(kept)
            checked += 1
        if checked > 150:
            break
    VALIDATOR.validate(found)
