"""The guide in the log: the present situation, and the next key to press."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stallprobes.latency.ratio import Quantile
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView, StalledBefore
from stallprobes.measurement.blame import plan_of
from stallprobes.model import Kind, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallprobes.units import duration_ns, times
from stallprobes.verdicts.candidates import aggressor_groups
from stallprobes.verdicts.verdict import Proof
from stallscope.tui import probe_sets
from stallscope.tui.monitor.probe_table import probe_keys
from stallscope.tui.monitor.state import MonitorState

# Words for the baseline in the monitor's explanations.
_BASELINE = "how long the calls of each victim take while no aggressor runs"


@dataclass(frozen=True)
class Guide:
    """``status`` says what is shown, ``next_step`` which key is next; each is "" where there is nothing to say.

    ``urgent``: the next step is the one that a new user needs. ``lines`` compare a remedy with the stall before it, in
    place of the status: label, its style, text.
    """

    status: str = ""
    next_step: str = ""
    urgent: bool = False
    lines: tuple[tuple[str, str, str], ...] = ()


def guide(
    state: MonitorState,
    observation: Observation,
    model: MonitorView | None,
    analyzer: Analyzer | None,
    keys: Mapping[str, str],
    *,
    replayed: bool,
) -> Guide:
    """The guide; ``model`` shows ``analyzer``, and ``keys`` are those of the actions by name.

    In a recording, ``replayed``, no key switches anything.
    """
    on, before = probe_sets.aggressors_on(observation), None if model is None else model.before
    starting = observation.engine.state is EngineCondition.STARTING
    if model is not None and before is not None and (starting or (analyzer is not None and analyzer.without_baseline)):
        lines = (_starting(before, observation, model), _was(before, model), _remedy(observation))
        coming = on or [probe for probe in observation.probe_set.probes if starting and probe.role is Role.AGGRESSOR]
        waits = (
            f"wait for the baseline, then {_names(coming, 'comes')} on by itself" if coming else "wait for the baseline"
        )
        return Guide("", "" if replayed else _steps([waits, f"{keys['go_back']} back"]), lines=lines)
    if observation.engine.state is not EngineCondition.READY:
        return Guide(observation.engine.sentence)
    if analyzer is not None and analyzer.without_baseline:
        left_s = None if model is None else model.baseline_left_s
        return Guide(_measuring(left_s, observation), "" if replayed else _after_baseline(state, observation, keys))
    if analyzer is not None and analyzer.stalls:
        return Guide("", _at_stall(state, observation, analyzer, on, keys, replayed), not replayed)
    if analyzer is not None and analyzer.worst is not None:
        return Guide("A victim is slower than its baseline. The verdict follows when that has lasted for a moment.")
    shown = _compared(observation, model, on)
    if model is not None and before is not None and shown is not None:
        lines = (shown, ("because", "dim", _variant_why(observation)), _remedy(observation, measured=True))
        steps = [*_remedy_step(observation, None, on, keys), *_back_step(state, keys), _off_step(on, keys)]
        return Guide("", "" if replayed else _steps(steps), lines=lines)
    status = "Every victim is as fast as its baseline" + (f" while {_names(on)}." if on else ".")
    if replayed:
        return Guide(status)
    if not state.tried:
        return Guide(status, _first_step(observation, keys, "Press"), urgent=True)
    if not on:
        switches = _aggressor_keys(observation)
        back = "".join(f"; {step}" for step in _back_step(state, keys))
        return Guide(status, f"Switch an aggressor on ({switches}), or select a pattern ({keys['patterns']}){back}.")
    return Guide(
        status, _steps([*_remedy_step(observation, None, on, keys), *_back_step(state, keys), _off_step(on, keys)])
    )


def _starting(before: StalledBefore, observation: Observation, model: MonitorView) -> tuple[str, str, str]:
    """The variant that starts, its difference from the stall, and the time of its baseline."""
    probe_set = observation.probe_set
    name = before.counterpart or probe_sets.first_victim(probe_set) or ""
    left_s = model.baseline_left_s
    baseline = "its baseline" if left_s is None else f"{max(1, round(left_s))} s of baseline"
    what = f"{_keyed(name, probe_set)}: {before.relation}" if before.relation else _keyed(name, probe_set)
    if observation.engine.state is EngineCondition.STARTING:
        return "starting", "strong", f"{what}; then {baseline}"
    return "baseline", "strong", f"{what}; {baseline} left"


def _was(before: StalledBefore, model: MonitorView) -> tuple[str, str, str]:
    """The stall before the remedy, with its aggressors."""
    row = before.row
    verdict = next(
        (entry.verdict for entry in model.log if entry.verdict.probe == row.name and entry.verdict.kind.is_stall), None
    )
    by = "" if verdict is None or not verdict.aggressors else f", by {' or '.join(verdict.aggressors)}"
    word = "" if row.phase is None else row.phase.traits.word
    word += " p99" if row.quantile is Quantile.P99 else ""
    figures = f"{word} {duration_ns(row.baseline_ns)} → {duration_ns(row.now_ns)}"
    ratio = "" if row.ratio is None else f"  {times(row.ratio)}"
    return "was", "ghost", f"{row.state} {_keyed(row.name, before.probe_set)}  {figures}{ratio}{by}"


def _remedy(observation: Observation, *, measured: bool = False) -> tuple[str, str, str]:
    """The present remedy among the pattern's, with the expected result; once it is ``measured``, the remaining ones."""
    probe_set = observation.probe_set
    remedies = [variant.name for variant in patterns()[probe_set.pattern].variants if variant.kind is Kind.REMEDY]
    place = remedies.index(probe_set.variant) + 1
    number, left = f"{place} of {len(remedies)}", remedies[place:]
    if not measured:
        return "remedy", "dim", f"{probe_set.variant}, {number}: {probe_set.expect}"
    return "remedy", "dim", f"{number} measured" + (f"; next: {', '.join(left)}" if left else "")


def _compared(observation: Observation, model: MonitorView | None, on: Sequence[Probe]) -> tuple[str, str, str] | None:
    """The call that was stalled, beside the aggressors that run; None while it is not quiet, or none runs."""
    before = None if model is None else model.before
    if model is None or before is None or not on:
        return None
    row = model.row(before.counterpart or probe_sets.first_victim(observation.probe_set) or "")
    if row is None or row.mark != "good" or row.phase is None:
        return None
    name, beside = _keyed(row.name, observation.probe_set), " and ".join(aggressor.name for aggressor in on[:2])
    text = f"{name}  {row.phase.traits.word} {duration_ns(row.p50_ns)} beside {beside}, as without it"
    if before.counterpart is None:
        return "quiet", "good", f"{text}; {before.relation}"
    ratio = "" if before.row.ratio is None else f", {times(before.row.ratio)}"
    return "helps", "good", f"{text}   was {duration_ns(before.row.now_ns)}{ratio}"


def _variant_why(observation: Observation) -> str:
    return patterns()[observation.probe_set.pattern].variant(observation.probe_set.variant).why


def _keyed(name: str, probe_set: ProbeSet) -> str:
    return f"{probe_keys(probe_set).get(name, '')} {name}".strip()


def _measuring(left_s: float | None, observation: Observation) -> str:
    """The measurement before the first judgement, and its remaining time."""
    waiting = [probe for probe in observation.probe_set.probes if probe.name in observation.waiting]
    then = f" Then {_names(waiting)}." if waiting else ""
    if left_s is None:
        return f"The baseline is measured once no aggressor runs: {_BASELINE}.{then}"
    return f"Measuring the baseline, about {max(1, round(left_s))} s left: {_BASELINE}.{then}"


def _after_baseline(state: MonitorState, observation: Observation, keys: Mapping[str, str]) -> str:
    return "" if state.tried else _first_step(observation, keys, "Then press")


def _first_step(observation: Observation, keys: Mapping[str, str], press: str) -> str:
    """The key of the first aggressor, and its effect; without an aggressor the key of the patterns."""
    key_of = probe_keys(observation.probe_set)
    first = next((probe for probe in observation.probe_set.probes if probe.role is Role.AGGRESSOR), None)
    if first is None:
        return f"{press} {keys['patterns']} to select a pattern with an aggressor."
    return f"{press} {key_of[first.name]} to run {first.name} and see which calls wait for it."


def _at_stall(
    state: MonitorState,
    observation: Observation,
    analyzer: Analyzer,
    on: Sequence[Probe],
    keys: Mapping[str, str],
    replayed: bool,
) -> str:
    """The keys of the explanation, of the remedy and of the end of a stall."""
    off = [_off_step(on, keys)] if on and not replayed else []
    if state.focus_name != max(analyzer.stalls, key=lambda name: analyzer.stalls[name]):
        return _steps([f"{keys['follow']} shows the victim that stalls worst", *off])
    explain = f"{keys['explain']} explains it, with code"
    if replayed:
        return _steps([explain])
    blame = _blame_step(observation, analyzer, state.focus_name, on, keys)
    # A remedy of a cause that is not known helps by chance.
    known = not blame or blame[1]
    remedy = _remedy_step(observation, state.probe(state.focus_name), on, keys) if known else ()
    return _steps([*blame[:1], *remedy, explain, *off])


def _blame_step(
    observation: Observation, analyzer: Analyzer, name: str | None, on: Sequence[Probe], keys: Mapping[str, str]
) -> tuple[str, bool] | tuple[()]:
    """The key that finds the cause by experiment, and whether a probable one is known; nothing where it is known."""
    groups = aggressor_groups(on)
    verdict = next(
        (candidate for candidate in analyzer.verdicts if candidate.probe == name and candidate.kind.is_stall), None
    )
    if len(groups) < 2 or verdict is None or verdict.proof not in (Proof.OPEN, Proof.PROBABLE):
        return ()
    victims = [probe for probe in observation.probe_set.probes if probe.role is Role.VICTIM]
    seconds = f"({plan_of(on, victims).total_s:.0f} s)"
    probable = verdict.proof is Proof.PROBABLE
    what = "proves or refutes it" if probable else f"finds which of the {len(groups)}"
    return f"{keys['blame']} {what} {seconds}", probable


def _steps(steps: Sequence[str]) -> str:
    return f"Next: {' · '.join(steps)}"


def _remedy_step(
    observation: Observation, stalled: Probe | None, on: Sequence[Probe], keys: Mapping[str, str]
) -> tuple[str, ...]:
    """The key of the next remedy, of the pattern or of the victim that is ``stalled``, where there is one.

    After the last remedy of a pattern it goes back to the stall.
    """
    probe_set = observation.probe_set
    remedy = probe_sets.next_remedy(probe_set, stalled, on)
    if remedy is None:
        return ()
    pattern, variant = patterns()[remedy[0]], remedy[1]
    if pattern.variant(variant).kind is not Kind.REMEDY:
        return (f"{keys['remedy']} goes back to the stall",)
    again = bool(probe_set.pattern) and pattern.variant(probe_set.variant).kind is Kind.REMEDY
    return (f"{keys['remedy']} measures {'the next' if again else 'a'} remedy",)


def _back_step(state: MonitorState, keys: Mapping[str, str]) -> tuple[str, ...]:
    """The key that leads from a remedy or pattern to the probes before it, where there are any."""
    return (f"{keys['go_back']} leaves the pattern",) if state.way_back is not None else ()


def _off_step(on: Sequence[Probe], keys: Mapping[str, str]) -> str:
    return f"{keys['all_off']} aggressor{'s' if len(on) > 1 else ''} off"


def _aggressor_keys(observation: Observation) -> str:
    """The keys of the aggressors: ``1``, ``1, 2``, ``1, 2, 3 …``."""
    key_of = probe_keys(observation.probe_set)
    keys = [key_of[name] for name in probe_sets.aggressors(observation.probe_set) if key_of[name].strip()]
    return ", ".join(keys[:3]) + (" …" if len(keys) > 3 else "")


def _names(probes: Sequence[Probe], verb: str = "runs") -> str:
    """``spin runs``, or ``3 aggressors run``."""
    return f"{probes[0].name} {verb}" if len(probes) == 1 else f"{len(probes)} aggressors {verb.removesuffix('s')}"
