"""Alert rules and dashboard of ``fleet``: they ask for metrics and labels that the commands write, in valid PromQL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from factories import host_checks
from factories.prometheus_text import read
from factories.watch_moments import findings
from stallprobes.matrix import prometheus as of_checks
from stallprobes.watch import prometheus as of_programs
from stallprobes.watch.division.parts import Bound
from stallscope.cli import fleet

ALERTS = yaml.safe_load(fleet.text("alerts"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in ALERTS for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads(fleet.text("grafana"))
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{f"{title} {target['refId']}": target["expr"] for title, target in TARGETS},
    **{each["name"]: each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"},
}
# Labels that Prometheus adds to what it reads of a machine.
OF_PROMETHEUS = {"instance", "job"}
with_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")


def written() -> dict[str, set[str]]:
    """The labels of each metric that the commands write by default."""
    texts = (of_checks.text(host_checks.every_status()), of_programs.text(findings(8), "train", 0))
    labels: dict[str, set[str]] = {}
    for name, pairs in (series for text in texts for series in read(text)):
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    return labels


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression with the labels by which its series are selected."""
    for name, inside in re.findall(
        r"\b(stallscope_\w+)(?:\{([^}]*)\})?", re.sub(r"__name__=~\"[^\"]*\"", "", expression)
    ):
        yield name, set(re.findall(r"(\w+)(?:=~|!~|!=|=)", inside))


def promtool(*arguments: str, folder: Path) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_asks_for_what_is_written(name: str) -> None:
    known = written()
    for metric, labels in selectors(EXPRESSIONS[name]):
        assert metric in known
        assert labels <= known[metric] | OF_PROMETHEUS
    # Also the verdicts that are no reason for an alert.
    for verdicts in re.findall(r'verdict!~"([^"]*)"', EXPRESSIONS[name]):
        assert set(verdicts.split("|")) <= set(Bound)


def test_an_alert_says_what_it_is_and_names_labels_of_its_metric() -> None:
    known = written()
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        (metric, _), *_ = selectors(rule["expr"])
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert rule["annotations"]["summary"]
        assert used <= known[metric] | OF_PROMETHEUS


def test_the_panels_of_the_dashboard_have_their_places_and_their_variables() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = any(
            one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at]
            for at, size in (("x", "w"), ("y", "h"))
        )
        assert apart, (one, other)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(DASHBOARD))) == variables


@with_promtool
def test_promtool_accepts_the_rules_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(fleet.text("alerts"), encoding="utf-8")
    promtool("check", "rules", "alerts.yml", folder=tmp_path)
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", ".+", target["expr"])}
        for number, (_, target) in enumerate(TARGETS)
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "panels.yml", folder=tmp_path)


@with_promtool
def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    for text in (of_checks.text(host_checks.every_status()), of_programs.text(findings(8), "train", 0)):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def alert(name: str, at: str, summary: str | None, **labels: str) -> dict[str, Any]:
    """A test of promtool: the alert ``name`` at a time, with its ``summary``; None where it must not be."""
    expected = []
    if summary is not None:
        (rule,) = (rule for rule in RULES if rule["alert"] == name)
        others = {key: text for key, text in rule["annotations"].items() if key != "summary"}
        annotations = {key: text.replace("{{ $labels.instance }}", "node-1") for key, text in others.items()}
        expected = [
            {
                "exp_labels": {**labels, "instance": "node-1", "severity": rule["labels"]["severity"]},
                "exp_annotations": {**annotations, "summary": summary},
            }
        ]
    return {"eval_time": at, "alertname": name, "exp_alerts": expected}


@with_promtool
def test_the_alerts_fire_and_do_not(tmp_path: Path) -> None:
    cell = 'victim="launch", aggressor="spin", simulated="false", instance="node-1"'
    process = 'instance="node-1", watch="train", process="0"'
    sequence = f'{process}, sequence="0", device="0"'
    checks = {
        f"stallscope_cell_worst_ratio{{{cell}}}": "1+0x13 9 9",
        # A stall that every GPU has.
        f"stallscope_cell_worst_ratio{{{cell.replace('spin', 'alloc-free')}}}": "400+0x15",
        f'stallscope_cell_status{{{cell}, status="starved"}}': "_x13 1 1",
        'stallscope_check_timestamp_seconds{instance="node-1"}': "0+0x15",
    }
    watched = {
        f'stallscope_watch_verdict_info{{{sequence}, verdict="host", second=""}}': "1+0x60",
        f"stallscope_watch_process_running{{{process}}}": "1+0x30 0+0x30",
        f"stallscope_watch_standstill_seconds{{{process}}}": "0+0x15 90+0x45",
        f'stallscope_watch_step_seconds{{{sequence}, percentile="50"}}': "0.1+0x10 0.2+0x50",
        'stallscope_watch_timestamp_seconds{instance="node-1", watch="train"}': "0+60x20 1200+0x40",
        f'stallscope_watch_cost_ratio{{{process}, limit="low"}}': "0.01+0x60",
    }
    launch = {"victim": "launch", "aggressor": "spin", "simulated": "false"}
    train = {"watch": "train", "process": "0"}
    first = {**train, "sequence": "0", "device": "0"}
    bound = "Process 0 of train: the verdict is host"
    slower = "A step of train takes 200ms, 1.5 times that of 6 hours"
    tests = [
        (
            "1d",
            checks,
            [
                alert("StallscopeNewStall", "12d", None),
                alert("StallscopeNewStall", "14d", "launch beside spin: 9 times its baseline", **launch),
                alert("StallscopeNewlyStarved", "12d", None),
                alert(
                    "StallscopeNewlyStarved", "14d", "launch hardly returns beside spin, unlike 7 days ago",
                    **launch, status="starved",
                ),
                alert("StallscopeCheckIsOld", "8d", None),
                alert("StallscopeCheckIsOld", "9d", "The last check of node-1 began 9d 0h 0m 0s ago"),
            ],
        ),
        (
            "1m",
            watched,
            [
                alert("StallscopeNotBoundByTheGpu", "10m", None),
                alert("StallscopeNotBoundByTheGpu", "20m", bound, **first, verdict="host"),
                # The program has ended.
                alert("StallscopeNotBoundByTheGpu", "40m", None),
                alert("StallscopeProgramStandsStill", "15m", None),
                alert("StallscopeProgramStandsStill", "40m", None),
                alert("StallscopeProgramStandsStill", "20m", "Process 0 of train: no call for 1m 30s", **train),
                alert("StallscopeStepSlower", "10m", None),
                alert("StallscopeStepSlower", "25m", slower, **first, percentile="50"),
                alert("StallscopeWatchEndedEarly", "20m", None),
                alert(
                    "StallscopeWatchEndedEarly", "28m", "The watch of train has written nothing for 8m 0s",
                    watch="train",
                ),
                alert("StallscopeWatchEndedEarly", "40m", None),
                alert("StallscopeWatchCost", "20m", None),
            ],
        ),
    ]  # fmt: skip
    (tmp_path / "alerts.yml").write_text(fleet.text("alerts"), encoding="utf-8")
    for interval, series, wanted in tests:
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        document = {
            "rule_files": ["alerts.yml"],
            "evaluation_interval": interval,
            "tests": [{"interval": interval, "input_series": inputs, "alert_rule_test": wanted}],
        }
        (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        promtool("test", "rules", "tests.yml", folder=tmp_path)
