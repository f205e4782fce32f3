"""The header of the timeline: engine and GPU, state of timeline and trigger; then span, limits and losses.

Also the sentences in place of a trace.
"""

from __future__ import annotations

from stallprobes.recording.observation import SIM, EngineCondition, Observation
from stallprobes.traces.trigger import TriggerLimits
from stallprobes.units import plural
from stallscope.tui import probe_sets
from stallscope.tui.actions import AGGRESSOR_KEYS
from stallscope.tui.common.bars import HeadView, titled
from stallscope.tui.common.lines import Line, fit, length
from stallscope.tui.sources.live_timeline import TimelineCondition, TimelineReport
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.details import clock_text
from stallscope.tui.timeline.time_axis import span_text
from stallscope.tui.timeline.trace_capture import CaptureState, TraceCapture, limit_text

# Sentence while the timeline is off.
OFF = "No call is recorded now. r records: calls become 1 to 10 µs longer, and on a GPU the start takes some 16 s."
# Sentence for a recording without traces.
NO_TRACE = "This recording has no trace. A recording with the timeline on has one around each stall."


def live_sentences(report: TimelineReport | None, observation: Observation, recorded: bool) -> tuple[str, ...]:
    """The sentences in place of a live trace; () where there is one. ``recorded``: something has been recorded."""
    if report is None:
        return (OFF,)
    match report.condition:
        case TimelineCondition.ON if recorded:
            return ()
        case TimelineCondition.ON:
            return ("Calls are being recorded. Nothing has come yet.",)
        case TimelineCondition.PROBLEM:
            sentence = report.status.sentence.rstrip(".")
            return (f"{sentence[:1].upper()}{sentence[1:]}.", "The monitor and all other phases work without it.")
        case TimelineCondition.NO_ENGINE:
            return (
                observation.engine.sentence or "No engine runs.",
                "The recording begins with the next engine; R restarts it.",
            )
        case TimelineCondition.OFF | TimelineCondition.SWITCHING_OFF:
            return (OFF,)
        case TimelineCondition.SWITCHING_ON:
            return (
                f"The recording is being switched on ({report.age_s:.0f} s).",
                "On a GPU the first time takes some 16 s. The probes keep running.",
            )


def live_state(capture: TraceCapture, report: TimelineReport | None, observation: Observation) -> tuple[str, str]:
    """State of the live trace, and its style."""
    lost = observation.engine.state is EngineCondition.LOST
    if capture.state is CaptureState.FROZEN:
        end = ", ENGINE LOST" if lost else ""
        return f"FROZEN {capture.why}{end}", "alarm" if lost else "notice"
    if lost:
        return "ENGINE LOST", "alarm"
    condition = None if report is None else report.condition
    if condition in (None, TimelineCondition.OFF, TimelineCondition.SWITCHING_OFF):
        return "not recording", "dim"
    if condition is not TimelineCondition.ON:
        return ("NOT AVAILABLE", "alarm") if condition is TimelineCondition.PROBLEM else ("switching on", "warn")
    match capture.state:
        case CaptureState.ARMED if capture.stalled is not None:
            return f"ARMED, waits for a stall of {capture.stalled}", "notice"
        case CaptureState.ARMED:
            return "ARMED", "notice"
        case CaptureState.TRIGGERED:
            return "TRIGGERED", "notice"
        case _:
            return "● live", "good"


def head_view(
    cursor: TraceCursor,
    state: tuple[str, str],
    observation: Observation | None,
    live_parts: tuple[tuple[str, str], ...],
) -> HeadView:
    """The header; ``live_parts`` are the figures of a live timeline."""
    probe_set, trace = None if observation is None else observation.probe_set, cursor.trace
    simulated = (probe_set is not None and probe_set.backend == SIM) or (trace is not None and trace.simulated)
    parts: Line = [(f"span {span_text(cursor.viewport.span_ns)}", "strong"), *live_parts]
    if trace is not None and not live_parts and not trace.context_switches:
        parts.append(("context switches not recorded", "warn"))
    if trace is not None and trace.unrecorded:
        begin_ns, end_ns = cursor.viewport.begin_ns, cursor.viewport.begin_ns + cursor.viewport.span_ns
        parts.append((f"GPU work recorded in {trace.recorded_share(begin_ns, end_ns):.0%} of it", "warn"))
    if trace is not None and trace.losses.lost:
        parts.append((f"{plural(trace.losses.lost, 'record')} lost", "warn"))
    if trace is not None and cursor.intervals is not None:
        parts.append((clock_text(trace.wall_s(cursor.viewport.begin_ns)), "dim"))
    machine = "" if probe_set is None else probe_sets.gpu_label(probe_set)
    return titled(simulated, machine, state, lambda width, _: [_parts_line(parts, width)])


def _parts_line(parts: Line, width: int) -> Line:
    """As many parts as fit, the first one in any case."""
    line: Line = [(" ", "")]
    for text, style in parts:
        if length(line) + len(text) + 3 <= width:
            line += [(text, style), ("   ", "")]
    return fit(line if len(line) > 1 else [(" ", ""), *parts[:1]], width)


def live_parts(
    capture: TraceCapture, limits: TriggerLimits | None, report: TimelineReport | None, observation: Observation
) -> tuple[tuple[str, str], ...]:
    """The figures of a live timeline: limit, aggressors with their keys, share before the trigger, missing records."""
    parts = [(f"trigger above {limit_text(capture, limits)}", "")]
    on = probe_sets.aggressors_on(observation)
    for key, name in zip(AGGRESSOR_KEYS, probe_sets.aggressors(observation.probe_set), strict=False):
        runs = any(probe.name == name for probe in on)
        parts.append((f"{key} {'■' if runs else '□'} {name}", "" if runs else "dim"))
    parts.append((f"{capture.before:.0%} before the trigger", "dim"))
    if report is not None and report.status.on and report.status.note:
        parts.append((report.status.note, "warn"))
    return tuple(parts)
