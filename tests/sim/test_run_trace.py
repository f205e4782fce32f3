"""The trace of a run: ``run(..., trace_seconds)``, ``save_trace`` and ``stallscope run --trace FILE``."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import stallprobes
from factories import command_line
from factories.chrome_traces import read_chrome_trace
from factories.virtual_session import virtual_sessions
from stallprobes.errors import FileNotWritten
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.measurement import run_trace
from stallprobes.measurement.result import RunResult
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.trace import Trace
from stallscope.cli import run as run_command
from stallscope.cli.output_files import TRACE, OutputFiles
from stallscope.cli.process.progress import Progress

RUN = ("run", "secondary-context-d2d", "--sim", "--seconds", "0.5")
ONE = ("--variant", "kernel-other-context")


@pytest.fixture(scope="module")
def sessions() -> Iterator[None]:
    """Runs of this module's library calls start no engine process."""
    with virtual_sessions():
        yield


@pytest.fixture(scope="module")
def titled() -> list[TitledTrace]:
    """The traces of ``result``."""
    return []


@pytest.fixture(scope="module")
def result(sessions: None, titled: list[TitledTrace]) -> RunResult:
    """A run of two variants with a trace of their last 0.6 s."""
    variants = ("secondary-alone", "kernel-other-context")
    return stallprobes.run(
        "secondary-context-d2d",
        variants=variants,
        seconds=0.5,
        backend="sim",
        trace_seconds=0.6,
        traced=titled.append,
    )


@pytest.fixture
def traces(result: RunResult, titled: list[TitledTrace]) -> dict[str, Trace]:
    """The trace of each variant of ``result``."""
    return {variant.variant: one.trace for variant, one in zip(result.variants, titled, strict=True)}


def test_each_variant_has_a_trace_of_its_last_seconds_with_the_aggressors(
    result: RunResult, traces: dict[str, Trace]
) -> None:
    assert result.timeline
    found = traces
    assert list(found) == ["secondary-alone", "kernel-other-context"]
    for trace in found.values():
        assert trace.simulated
        assert trace.span_ns == pytest.approx(600_000_000, abs=1_000_000)
        assert trace.collected_ns >= trace.end_ns
        # The window of 0.5 s is in it, and only what is before it.
        assert len(trace.calls) > 900
        assert int(trace.calls["began_ns"].max()) <= trace.end_ns
        assert trace.losses.lost == 0
    aggressor = [probe.name for probe in found["kernel-other-context"].probes].index("spin")
    launches = found["kernel-other-context"].calls
    assert int(launches[launches["probe"] == aggressor]["began_ns"][-1]) > launches["began_ns"][-1] - 60_000_000


def test_its_trigger_is_the_most_delayed_call_of_a_victim(traces: dict[str, Trace]) -> None:
    trace = traces["kernel-other-context"]
    assert trace.trigger is not None
    assert trace.probes[trace.trigger.probe].name == "d2d@secondary"
    row = trace.trigger_call()
    assert row is not None
    assert int(trace.calls["returned_ns"][row]) == trace.trigger.returned_ns
    (work,) = trace.work_of(row)
    assert work[2] - trace.trigger.returned_ns > 2_000_000


@pytest.mark.parametrize(
    ("pattern", "variant", "probe", "call", "phase"),
    [
        # A wait of each iteration is as long: nothing is unusual among them, and all are far above the baseline.
        ("host-callback", "busy-10ms", "callback", "cuStreamSynchronize", "wait"),
        # No victim, and no baseline.
        ("scalar-readback", "pageable", "scalar-readback", "D2H 4 bytes", "call"),
        ("secondary-context-d2d", "kernel-other-context", "d2d", "cuMemcpyDtoDAsync", "start"),
        # No call of the victim returns.
        ("default-stream-gate", "pageable", "launch", "cuLaunchKernel", "call"),
    ],
)
def test_the_trigger_is_the_stall_and_says_what_is_long(
    pattern: str, variant: str, probe: str, call: str, phase: str, tmp_path: Path
) -> None:
    found: list[TitledTrace] = []
    stallprobes.run(pattern, variants=(variant,), seconds=0.5, backend="sim", trace_seconds=0.6, traced=found.append)
    stallprobes.save_trace(found, tmp_path / "trace.json")
    (instant,) = read_chrome_trace((tmp_path / "trace.json").read_text("utf-8")).instants
    args = instant["args"]
    assert args["probe"].startswith(probe)
    assert call in args["call"]
    assert (args["phase"], args["duration"].endswith("ms")) == (phase, True), args


def test_a_run_without_trace_seconds_has_none(sessions: None, tmp_path: Path) -> None:
    found: list[TitledTrace] = []
    stallprobes.run("launch", seconds=0.5, backend="sim", timeline=True, traced=found.append)
    assert found == []
    with pytest.raises(ValueError, match="trace_seconds"):
        stallprobes.save_trace(found, tmp_path / "trace.json")
    assert os.listdir(tmp_path) == []


def test_the_file_has_all_variants_and_says_what_was_measured(
    result: RunResult, titled: list[TitledTrace], tmp_path: Path
) -> None:
    stallprobes.save_trace(titled, tmp_path / "trace.json", result=result)
    found = read_chrome_trace((tmp_path / "trace.json").read_text("utf-8"))
    assert [each["title"] for each in found.about["traces"]] == [
        "secondary-context-d2d secondary-alone",
        "secondary-context-d2d kernel-other-context",
    ]
    assert found.about["program"].startswith("stallscope")
    assert "SIMULATED" in found.about["gpu"]
    assert found.about["timeline_library"] == "simulated"
    assert len(found.instants) == 2
    assert len(found.slices) > sum(len(one.trace.calls) for one in titled)
    # A trace of its own is written too.
    stallprobes.save_trace(titled[0].trace, tmp_path / "one.json")
    one = read_chrome_trace((tmp_path / "one.json").read_text("utf-8"))
    assert {each.process for each in one.slices} <= {"host (SIMULATED)", "GPU 0, context secondary (SIMULATED)"}


def test_the_command_writes_the_file_and_the_result(tmp_path: Path) -> None:
    path = tmp_path / "stall.json.gz"
    done = command_line.run(*RUN, *ONE, "--trace", str(path), "--trace-seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    assert f"trace written to {path}; open it in Perfetto or chrome://tracing" in done.stderr
    document = json.loads(done.stdout)
    assert document["timeline"] is True
    assert any(verdict["kind"] == "stalled" for verdict in document["variants"][0]["verdicts"])
    found = read_chrome_trace(gzip.decompress(path.read_bytes()).decode())
    assert any("context primary had the engine" in each.args.get("delay_cause", "") for each in found.of("gpu"))
    (about,) = found.about["traces"]
    assert "title" not in about
    ends = [each.end_ns for each in found.of("call")]
    assert 190_000_000 < max(ends) < 260_000_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--trace-seconds", "3"), "--trace-seconds needs --trace FILE"),
        (("--trace", "t.json", "--trace-seconds", "0"), '"0" is not a number of seconds from 0.01 to 60'),
        (("--trace", "t.json", "--trace-seconds", "x"), '"x" is not a number of seconds from 0.01 to 60'),
        (
            ("--trace", "there.json"),
            "--trace: there.json already exists: name another file, or overwrite it with --force",
        ),
        (("--trace", "-"), "--trace needs a file; use --json for stdout"),
        (("--trace", "nowhere/t.json"), "--trace: nowhere/t.json cannot be written: the folder"),
    ],
)
def test_wrong_use_is_one_sentence_before_anything_is_measured(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.json").touch()
    done = command_line.run("run", "launch", *arguments, mode="never")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr
    assert os.listdir(tmp_path) == ["there.json"]


def test_a_disk_that_fills_up_loses_the_trace_only(
    result: RunResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The result is printed, and the sentence says which file is missing."""

    def full(*_: object, **__: object) -> None:
        raise FileNotWritten("t.json cannot be written: No space left on device")

    monkeypatch.setattr(run_trace, "save", full)
    files = OutputFiles({TRACE: tmp_path / "t.json"}, False)
    with Progress() as progress:
        failed = files.write({TRACE: partial(run_command._write_trace, result, [], False)}, progress)
    assert failed == ["--trace: t.json cannot be written: No space left on device"]


def test_the_other_processes_on_the_chosen_gpu_are_named() -> None:
    processes = (GpuProcess(os.getpid(), "this", None), GpuProcess(7, "python", 1 << 30))
    found = (
        Gpu("GPU-a", "0000:01:00.0", "NVIDIA H200", processes=processes),
        Gpu("GPU-b", "0000:02:00.0", "NVIDIA H200", processes=(GpuProcess(9, "other", None),)),
    )
    survey = Survey(found, DriverReport())
    assert run_trace.other_processes("GPU-a", survey) == ("python (pid 7)",)
    assert run_trace.other_processes("GPU-a,GPU-b", survey) == ("python (pid 7)", "other (pid 9)")
    assert run_trace.other_processes(None, survey) == ()


def test_an_interrupted_run_without_a_result_has_no_file(result: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    stopped, path = result.changed(variants=(), interrupted=True), Path("/nowhere/t.json")
    run_command._write_trace(stopped, [], False, path)
    sentence = "/nowhere/t.json was not written: no variant was measured to its end"
    assert f"--trace: {sentence}" in capsys.readouterr().err
    with pytest.raises(FileNotWritten, match=sentence):
        run_command._write_trace(stopped.changed(interrupted=False), [], False, path)
