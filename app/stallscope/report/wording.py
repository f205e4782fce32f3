"""Wording that text reports, the HTML page and the matrix screen share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparison import CellOutcome, Change, QuantileChange
from stallprobes.matrix.differences import Difference
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix, Status
from stallprobes.matrix.noise import BaselineSpread, baseline_spread
from stallprobes.model import Channel, Phase
from stallprobes.units import duration, duration_ns, times
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.report import findings
from stallscope.report.text import plural
from stallscope.report.timeline_text import start_clause

if TYPE_CHECKING:
    from stallprobes.matrix.comparison import CellChange, Comparison
    from stallprobes.matrix.outliers import Outlier
    from stallprobes.matrix.reference import Reference, ReferenceCell, ReferenceComparison, UnusualCell
    from stallprobes.verdicts.verdict import Verdict
    from stallscope.report.findings import CauseGroup

MATRIX_TITLE = "Latency relative to baseline, call/wait"
CAUSES_TITLE = "Worst case and remedy by cause"
REFERENCE_TITLE = "Unusual here, compared with other machines"
UNMEASURED_TITLES = {
    Status.INVALID: "Measured, but not counted",
    Status.UNSUPPORTED: "Not supported on this machine",
}
NO_CAUSE = "No cause is known."
# Number of cells that the headline names, and of cells of one host that a merged report names.
_WORST_CELLS = 2
_CELLS_PER_HOST = 5
# Differences between two checks that the headline names.
_MACHINE_KEYS = ("gpu", "driver", "cuda", "profile")


@dataclass(frozen=True)
class Headline:
    """The three lines that begin a report: the worst stalls, what changed, and how sure the figures are."""

    stalls: str
    changes: str
    certainty: str

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line."""
        return (("Stalls", self.stalls), ("Changes", self.changes), ("Measured", self.certainty))


def headline(
    matrix: Matrix, comparison: Comparison | None = None, reference: ReferenceComparison | None = None
) -> Headline:
    """The headline of ``matrix``, of the comparison whose newer side it is, and of that with a reference."""
    return Headline(
        stalls=_stalls(matrix),
        changes=changes_line(comparison, reference),
        certainty=_certainty(matrix),
    )


def _stalls(matrix: Matrix) -> str:
    counts = findings.counts(matrix)
    found = {kind: number for kind, number in counts.items() if isinstance(kind, VerdictKind) and kind.severity}
    number = sum(counts.values())
    words = ", ".join(f"{count} {kind.look.word}" for kind, count in found.items())
    worst = findings.worst_cells(matrix, _WORST_CELLS)
    if not worst:
        return f"no stall found in {plural(number, 'cell')}" + (f" ({words})" if words else "")
    return f"{words} of {plural(number, 'cell')}. Worst: {'; '.join(_cell_in_brief(cell) for cell in worst)}"


def _cell_in_brief(cell: Cell) -> str:
    kind = findings.cell_kind(cell)
    word = f"{kind.look.word}, " if kind is VerdictKind.STARVED else ""
    return f"{cell_name(cell)} ({word}{worst_figure(cell)})"


def cell_name(cell: Cell) -> str:
    """``launch beside spin``, ``launch alone``."""
    return f"{cell.row} alone" if cell.column == QUIET else f"{cell.row} beside {cell.column}"


def changes_line(comparison: Comparison | None, reference: ReferenceComparison | None = None) -> str:
    """The headline's line on what changed; without a comparison, what is unusual by a reference."""
    if comparison is None:
        if reference is not None:
            return f"not compared with an earlier check; {_unusual_count(reference)}"
        return "not compared with an earlier check (stallscope compare OLD NEW)"
    parts = [change_counts(comparison)]
    machine = [one for one in comparison.differences if one.key in _MACHINE_KEYS]
    parts += [difference_line(one) for one in machine]
    parts += [line] if (line := sensitivity_text(comparison)) else []
    return f"{'; '.join(parts)} (since {comparison.old.started_at})"


def sensitivity_text(comparison: Comparison) -> str:
    """``half of the phases would have shown ×1.5 at p50, nine of ten ×3.0``; "" where nothing could be detected."""
    found = comparison.sensitivity()[Quantile.P50]
    if found is None or found.half is None:
        return ""
    most = "" if found.nine_of_ten is None else f", nine of ten {times(found.nine_of_ten)}"
    return f"half of the phases would have shown {times(found.half)} at p50{most}"


def detectable_text(cell: CellChange) -> str:
    """What a cell that is SAME could have detected: ``no change above call p50 ×1.6, p99 ×2.1; wait p50 ×1.4``."""
    by_channel: dict[str, list[str]] = {}
    for part in cell.parts:
        if part.detectable is not None:
            by_channel.setdefault(channel_name(part.channel), []).append(f"{part.quantile} {times(part.detectable)}")
    found = "; ".join(f"{name} {', '.join(ratios)}" for name, ratios in by_channel.items())
    return f"no change above {found}" if found else "too few calls to detect a change" if cell.parts else ""


def _certainty(matrix: Matrix) -> str:
    counts = findings.counts(matrix)
    total = sum(counts.values())
    unmeasured = {kind: number for kind, number in counts.items() if isinstance(kind, Status)}
    text = f"{total - sum(unmeasured.values())} of {plural(total, 'cell')}"
    if unmeasured:
        text += f" ({', '.join(f'{number} {kind.look.word}' for kind, number in unmeasured.items())})"
    if matrix.interrupted:
        text += ", interrupted"
    spread = baseline_spread(matrix)
    return f"{text}; {'too few baselines to tell how they vary' if spread is None else spread_text(spread)}"


def spread_text(spread: BaselineSpread) -> str:
    """``baselines vary by ×1.3 (median over victims, worst ×2.1: event)``."""
    return (
        f"baselines vary by {times(spread.typical)} (median over victims, worst {times(spread.worst)}: "
        f"{spread.worst_row})"
    )


def variation(matrix: Matrix) -> str:
    """A sentence on how much the machine itself varies between the baselines of a check; "" if that is not known."""
    spread = baseline_spread(matrix)
    if spread is None:
        return ""
    what = "Each machine" if matrix.hosts else "The simulated machine" if matrix.simulated else "This machine"
    return (
        f"{what} varies by {times(spread.typical)} at p50 between the baselines of a victim, with no aggressor running "
        f"(median over victims; worst {times(spread.worst)}: {spread.worst_row})."
    )


def machine_name(matrix: Matrix) -> str:
    """The machine that was measured: GPU, driver and CUDA, or the simulated GPU's profile and seed."""
    of = matrix.fingerprint
    if matrix.simulated:
        return f"SIMULATED GPU, {profile_name(matrix)}"
    gpu = str(of.get("gpu") or "no GPU")
    if matrix.hosts:
        return f"{len(matrix.hosts)} machines merged · {gpu}"
    return f"{gpu} · driver {of.get('driver') or 'n/a'} · CUDA {of.get('cuda') or 'n/a'}"


def profile_name(matrix: Matrix) -> str:
    """Profile and seed of a simulated GPU: ``profile h200, seed 7``."""
    seed = "" if matrix.sim_seed is None else f", seed {matrix.sim_seed}"
    return f"profile {matrix.profile}{seed}"


def check_title(matrix: Matrix) -> str:
    """A check in one line: machine, size, repeats, duration and time."""
    beside = sum(column.name != QUIET for column in matrix.columns)
    size = f"{plural(len(matrix.rows), 'victim')} × {plural(beside, 'aggressor')}"
    quick = "quick, " if matrix.quick else ""
    repeats = f"{quick}{repeat_count(matrix)} in {matrix.seconds:.0f} s"
    interrupted = " · interrupted" if matrix.interrupted else ""
    timeline = " · with the timeline" if matrix.timeline else ""
    return f"{machine_name(matrix)} · {size} · {repeats} · {matrix.started_at}{timeline}{interrupted}"


def repeat_count(matrix: Matrix) -> str:
    """Number of repeats of a cell: ``4 repeats``, or ``4 to 8 repeats`` if cells that disagreed have more."""
    most = 0 if matrix.hosts else max((len(cell.repeats) for cell in matrix.cells.values()), default=0)
    if most <= matrix.repeats:
        return plural(matrix.repeats, "repeat")
    return f"{matrix.repeats} to {plural(most, 'repeat')}"


def kind_counts(matrix: Matrix) -> str:
    """Number of cells by kind: ``3 STALLED, 1 drift, 290 quiet``."""
    counts = findings.counts(matrix)
    return ", ".join(f"{number} {kind.look.word}" for kind, number in counts.items()) or "nothing measured"


def unmeasured_count(matrix: Matrix) -> str:
    """``12 cells unsupported, 1 cell invalid``; "" when there is none."""
    counts = findings.counts(matrix)
    return ", ".join(
        f"{plural(counts[status], 'cell')} {status.look.word}" for status in UNMEASURED_TITLES if status in counts
    )


def worst_case(group: CauseGroup) -> str:
    """``launch beside spin: call p50 2.70 µs → 2.26 ms (×837); 3 more cells``."""
    more = group.size - 1
    case = f"{cell_name(group.worst)}: {worst_figure(group.worst)}"
    return f"{case}; {plural(more, 'more cell')}" if more else case


def figures(cell: Cell) -> str:
    """Findings of ``cell`` in figures: ``call p50 2.70 µs → 2.26 ms (×837), wait …``."""
    return (
        ", ".join(_figure(cell, verdict) for verdict in findings.verdicts(cell)) or findings.cell_kind(cell).look.word
    )


def worst_figure(cell: Cell) -> str:
    """The worst finding of ``cell``: ``call p50 2.70 µs → 2.26 ms (×837)``, ``0 calls in 0.8 s``."""
    found = findings.verdicts(cell)
    if found and found[0].quantile is Quantile.IN_FLIGHT:
        calls, seconds = _returned(cell)
        return f"{plural(calls, 'call')} in {seconds:.1f} s"
    return _figure(cell, found[0]) if found else findings.cell_kind(cell).look.word


def short_figure(cell: Cell) -> str:
    """The worst finding of ``cell`` in a word: ``×837``, ``STARVED``."""
    found = findings.verdicts(cell)
    if not found or found[0].ratio is None or found[0].quantile is Quantile.IN_FLIGHT:
        return findings.cell_kind(cell).look.word
    return times(found[0].ratio)


def in_flight(cell: Cell) -> str:
    """``cuMemcpyDtoHAsync in flight for 1.20 s`` for a call older than 100 ms, else ""."""
    if cell.in_flight_ns is None or cell.in_flight_ns < findings.IN_FLIGHT_NS:
        return ""
    return f"{cell.in_flight_op or 'a call'} in flight for {duration_ns(cell.in_flight_ns)}"


def _figure(cell: Cell, verdict: Verdict) -> str:
    if verdict.quantile is Quantile.IN_FLIGHT:
        calls, seconds = _returned(cell)
        returned = f"{verdict.kind.look.word}: {plural(calls, 'call')} returned in {seconds:.1f} s"
        # The verdict has the age of its own window; the cell has the longest.
        return ", ".join(part for part in (returned, in_flight(cell)) if part)
    if verdict.kind is VerdictKind.FAILED or verdict.ratio is None:
        return verdict.sentence
    before, now = (None if ns is None else ns / 1000 for ns in (verdict.baseline_ns, verdict.now_ns))
    change = f"{duration(before)} → {duration(now)} ({times(verdict.ratio)})"
    return f"{phase_name(verdict.phase)} {verdict.quantile} {change}{start_clause(cell, verdict)}".strip()


def _returned(cell: Cell) -> tuple[int, float]:
    """Number of calls that returned, and the seconds in which they did."""
    return cell.iterations, cell.seconds


def phase_name(phase: Phase | None) -> str:
    """A phase in a report: ``call``, ``wait``, ``call from due time``."""
    return "" if phase is None else "call from due time" if phase is Phase.DUE else phase.traits.word


def channel_name(channel: Channel) -> str:
    """``call``, ``wait of cuMemcpyDtoHAsync``."""
    phase = phase_name(channel.phase)
    return f"{phase} of {channel.label}" if channel.label else phase


def host_sentences(outliers: Iterable[Outlier]) -> list[str]:
    """Sentences on the hosts of a merged matrix: for each the cells that differ most, each cell once."""
    worst: dict[str, dict[tuple[str, str], Outlier]] = {}
    for one in sorted(outliers, key=lambda one: abs(math.log(max(one.ratio, 1e-9))), reverse=True):
        worst.setdefault(one.host, {}).setdefault((one.row, one.column), one)
    sentences: list[str] = []
    for host, cells in worst.items():
        sentences += [one.sentence for one in list(cells.values())[:_CELLS_PER_HOST]]
        more = len(cells) - _CELLS_PER_HOST
        if more > 0:
            sentences.append(
                f"{host}: {plural(more, 'more cell')} differ{'s' if more == 1 else ''} from the other hosts."
            )
    return sentences


def fingerprint_items(fingerprint: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Keys and values of a fingerprint as text, without those that are unknown."""
    return tuple(
        (key.replace("_", " "), format_value(value))
        for key, value in fingerprint.items()
        if key != "unknown" and value is not None and value != {} and value != []
    )


def format_value(value: object) -> str:
    """A fingerprint's value as text."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value) or "none"
    return str(value)


def difference_line(difference: Difference) -> str:
    """``driver 570.9 → 580.1``."""
    key = difference.key.replace("_", " ")
    return f"{key} {format_value(difference.old)} → {format_value(difference.new)}"


def change_counts(comparison: Comparison) -> str:
    """Number of cells by outcome: ``2 SLOWER, 0 FASTER, 1 newly STARVED, 290 SAME, 3 only in NEW``."""
    if not comparison.cells:
        return "no cell in common"
    always = (CellOutcome.SLOWER, CellOutcome.FASTER)
    counts = {outcome: number for outcome, number in comparison.outcomes().items() if number or outcome in always}
    parts = [f"{number} {outcome.look.word}" for outcome, number in counts.items()]
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            parts.append(f"{len(places)} only in {where}")
    return ", ".join(parts)


def change_figures(cell: CellChange) -> str:
    """What changed in a cell: ``call p50 2.70 µs → 5.40 µs (×2.0)``, or its note."""
    if cell.note:
        return cell.note
    parts = [part for part in cell.parts if part.change == cell.change]
    return "; ".join(compared_text(part) for part in parts) or cell.outcome.look.word


def compared_text(part: QuantileChange) -> str:
    """One compared percentile: ``call p50 2.70 µs → 5.40 µs (×2.0)``, or why it is unsure."""
    name = f"{part.channel.phase}{f' of {part.channel.label}' if part.channel.label else ''} {part.quantile}"
    if part.change is Change.UNSURE and part.why:
        return f"{name} {part.why.rstrip('.')}"
    change = f"{name} {duration_ns(part.old_ns)} → {duration_ns(part.new_ns)}"
    return change + (f" ({times(part.ratio)})" if part.ratio is not None else "")


def _unusual_count(found: ReferenceComparison) -> str:
    here, there = len(found.stalled_here), len(found.stalled_there)
    name = f"other machines ({found.reference.gpu}, driver {found.reference.driver})"
    if not here and not there:
        return f"{plural(found.compared, 'cell')} as on {name}"
    words = [f"{number} {text}" for number, text in ((here, "stalled only here"), (there, "only there")) if number]
    return f"against {name}: {', '.join(words)}"


def reference_title(reference: Reference) -> str:
    """``h200-580: NVIDIA H200, driver 580.159.04, CUDA 13.0, 4 checks of 2 machines, 2026-11-21``."""
    first, last = reference.dates
    dates = first if first == last else f"{first} to {last}"
    cuda = reference.fingerprint.get("cuda") or "n/a"
    checks, machines = plural(len(reference.checks), "check"), plural(reference.machines, "machine")
    return f"{reference.name}: {reference.gpu}, driver {reference.driver}, CUDA {cuda}, {checks} of {machines}, {dates}"


def unusual_groups(found: ReferenceComparison) -> tuple[tuple[str, tuple[UnusualCell, ...]], ...]:
    """The unusual cells with what they have in common; groups without a cell are left out."""
    groups = (
        ("Stalled here, not on the reference", found.stalled_here),
        ("Stalled on the reference, not here", found.stalled_there),
    )
    return tuple((title, cells) for title, cells in groups if cells)


def unusual_figures(cell: UnusualCell) -> str:
    """``call p50 ×12, on the reference ×1.0 to ×1.1``."""
    if cell.ratio is None:
        here = "a call did not return"
    else:
        here = f"{phase_name(cell.phase)} {cell.quantile} {times(cell.ratio)}"
    if cell.range is None:
        return f"{here}, on the reference starved"
    # A call in flight has no percentile, so the reference's median stands for it.
    what = f"{phase_name(cell.phase)} {Quantile.P50} " if cell.ratio is None else ""
    return f"{here}, on the reference {what}{_range(cell.range.low, cell.range.high)}"


def reference_notes(found: ReferenceComparison) -> list[str]:
    """Sentences on how the comparison with a reference was made and what it means."""
    left_out = [
        f"{number} {why}"
        for number, why in (
            (found.disagreed, "on which its checks disagree"),
            (found.unjudged, "not judged here"),
            (found.absent, "that it does not have"),
        )
        if number
    ]
    notes = [
        f"Compared: {plural(found.compared, 'cell')}" + (f"; left out: {', '.join(left_out)}." if left_out else ".")
    ]
    if found.differences:
        here = (
            f"{one.key.replace('_', ' ')} {format_value(one.new)} (reference {format_value(one.old)})"
            for one in found.differences
        )
        notes.append(f"This machine differs: {', '.join(here)}.")
    if found.quick:
        notes.append("A quick check has fewer calls, so it misses rare stalls: where it has too few, nothing is named.")
    if found.simulated:
        notes.append("This GPU is SIMULATED, the reference is of real ones.")
    notes.append("A reference is no earlier check: a difference is neither a failure nor a change.")
    return notes


def reference_cell(cell: ReferenceCell) -> str:
    """A cell on the reference: ``stalled in 4 of 4 checks; call p50 ×1.0 to ×1.1, wait p50 ×380 to ×420``."""
    states = ", ".join(f"{state} in {number}" for state, number in cell.checks.items())
    ratios = ", ".join(
        f"{phase_name(phase)} {quantile} {_range(found.low, found.high)}"
        for (phase, quantile), found in cell.ratios.items()
        if phase in PHASES
    )
    return f"{states} of {plural(cell.measured, 'check')}" + (f"; {ratios}" if ratios else "")


def reference_baseline(reference: Reference, row: str) -> str:
    """The baseline of a victim on the reference: ``call p50 3.09 µs, wait p50 5.09 µs``; "" where it has none."""
    known = ((phase, reference.baselines_ns.get((row, phase))) for phase in PHASES)
    return ", ".join(f"{phase_name(phase)} {Quantile.P50} {duration_ns(ns)}" for phase, ns in known if ns is not None)


def _range(low: float, high: float) -> str:
    return times(low) if times(low) == times(high) else f"{times(low)} to {times(high)}"


def places_by_column(places: Iterable[tuple[str, str]]) -> list[str]:
    """``beside COLUMN: ROW, ROW`` for each column of ``places``, (row, column) each."""
    by_column: dict[str, list[str]] = {}
    for row, column in places:
        by_column.setdefault(column, []).append(row)
    return [f"beside {column}: {', '.join(rows)}" for column, rows in by_column.items()]


def false_alarms(comparison: Comparison) -> str:
    """How reliable SLOWER and FASTER are."""
    one_in = round(1 / comparison.false_alarm_rate)
    return (
        f"If nothing changed and calls were independent, at most 1 such comparison in {one_in} would report SLOWER or "
        "FASTER for any cell. Real machines vary more than chance alone: confirm a single changed cell with a second "
        "check. UNSURE looks changed, without enough evidence. In a cell that is SAME, a change above the ratio that "
        "it states would have been SLOWER or UNSURE with a probability of 90 %."
    )
