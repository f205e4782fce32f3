"""Text report of a run, and of the doctor's findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from stallprobes.model import SLOT_NS, Phase, Role
from stallprobes.patterns.remedy_code import remedy_code
from stallprobes.units import duration_ns, format_count, in_us, plural, times
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, LOOKS, VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict
from stallprobes.wording.timeline_wording import timeline_text
from stallscope.report.blame_table import blame_lines
from stallscope.report.catalog_text import VARIANT_KINDS
from stallscope.report.table import TableCell, TableColumn, TableHeading, TableRow
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.doctor import Finding
    from stallprobes.machine.gpu_state import GpuState
    from stallprobes.measurement.result import RunFigures, RunProbe, RunResult, RunVariant
    from stallprobes.verdicts.blame import Blame

# Style of a finding of stallscope doctor, by the finding's level.
_LEVELS = {"ok": "good", "warn": "warn", "problem": "bad"}
# Phases with columns in the tables of a run: the driver call, and the wait after the call has returned.
_SHOWN = (Phase.CALL, Phase.WAIT)
# Blanks before each line of the table of a blame experiment.
_BLAME_INDENT = "  "
# Phases with columns in the tables of a run with --timeline. Phase.EARLY, where the GPU starts the work before the
# call returns, has a note in place of a column.
_SHOWN_WITH_TIMELINE = (*_SHOWN, Phase.START, Phase.GPU)


def show_findings(out: TextWriter, findings: Sequence[Finding]) -> None:
    """Numbers of the doctor's problems and warnings; then each finding, with what to do."""
    problems, warnings = (sum(item.level == level for item in findings) for level in ("problem", "warn"))
    counts = ", ".join(
        plural(number, word) for number, word in ((problems, "problem"), (warnings, "warning")) if number
    )
    out.paragraph(
        f"{counts or 'No problem, no warning'}{': nothing can be measured on a GPU' if problems else ''}.",
        style="bad" if problems else "warn" if warnings else "good",
    )
    rows = []
    for finding in findings:
        text = f"{finding.found} → {finding.do}" if finding.do else finding.found
        rows.append((TableCell(str(finding.level), _LEVELS[finding.level]), finding.subject, text))
    out.table((TableColumn(""), TableColumn(""), TableColumn("")), rows)


def show_run(out: TextWriter, result: RunResult) -> None:
    """A run: for each pattern its verdicts, then the latencies, and host and GPU times where both are known."""
    out.paragraph(_headline(result), style="strong")
    for pattern, group in groupby(result.variants, key=lambda variant: variant.pattern):
        variants = list(group)
        out.line()
        out.paragraph(f"{pattern} · SIMULATED {result.profile}" if result.simulated else pattern, style="strong")
        for variant in variants:
            _verdicts(out, variant)
        if remedy_code(pattern) and any(verdict.remedy for variant in variants for verdict in variant.verdicts):
            out.paragraph(f"Remedies as code: `stallscope explain {pattern}`", style="dim")
        _latencies(out, variants, _SHOWN_WITH_TIMELINE if result.timeline else _SHOWN)
        for notes in (_early, _slots, _gpu_state):
            for variant in variants:
                for note in notes(variant):
                    out.paragraph(f"{variant.variant}: {note}", indent="  ", first="", style="dim")
        _host_and_device(out, variants)
    out.note(_spread_text(result))
    out.note(timeline_text(result.timeline_status or None))


def _spread_text(result: RunResult) -> str:
    """The largest spread of a median in the run; "" where none is known."""
    spreads = (variant.spread for variant in result.variants if variant.spread and variant.spread.probe)
    pairs = [(spread.p50, spread) for spread in spreads if spread.p50]
    if not pairs:
        return ""
    ratio, widest = max(pairs, key=lambda pair: pair[0])
    return (
        f"{'The simulated' if result.simulated else 'This'} machine varies by {times(ratio)} at p50 between windows of "
        f"0.25 s without an aggressor ({widest.phase} of {widest.probe})."
    )


def _headline(result: RunResult) -> str:
    gpu = result.fingerprint
    if result.simulated:
        return f"SIMULATED GPU, profile {result.profile}, seed {result.seed}"
    head = [str(gpu.get("gpu") or "no GPU"), f"driver {gpu.get('driver') or 'n/a'}", f"CUDA {gpu.get('cuda') or 'n/a'}"]
    return " · ".join([*head, f"{result.seconds:g} s each", result.started_at])


# Style of the word for a victim's state.
_STATE_STYLES = {look.word: look.style for look in LOOKS.values()} | {"failed": LOOKS[VerdictKind.FAILED].style}
# Style of the word for a variant that was not measured.
_STATUS_STYLES = {"unsupported": "warn", "invalid": "bad"}


def _latencies(out: TextWriter, variants: Sequence[RunVariant], phases: Sequence[Phase]) -> None:
    """The table of latencies: a line for each phase of each probe."""
    if not any(variant.probes for variant in variants):
        return
    out.line()
    beside, below = (
        [row for variant in variants for row in _rows(variant, phases, below=below)] for below in (False, True)
    )
    if not out.fitting_table(_COLUMNS, beside):
        out.table(_COLUMNS, below)


# Columns of the table of latencies.
_COLUMNS = (
    TableColumn("probe"),
    TableColumn("where", optional=True),
    TableColumn("state"),
    TableColumn("calls", right=True),
    TableColumn("phase"),
    *(TableColumn(title, right=True, unit="µs") for title in ("p50", "p99", "max")),
    TableColumn("×\nbaseline", right=True),
    TableColumn("in flight", right=True, optional=True),
)


def _rows(variant: RunVariant, phases: Sequence[Phase], *, below: bool) -> Iterator[TableRow]:
    """The rows of a variant below its name, each probe with a line for each of its phases.

    With ``below`` the place of a probe is below its name, else in a column of its own.
    """
    title = f"{variant.variant} ({VARIANT_KINDS[variant.kind]})"
    if variant.status == "unsupported" or not variant.probes:
        yield TableHeading(f"{title}: {variant.status}", _STATUS_STYLES.get(variant.status, ""))
        return
    yield TableHeading(title)
    for name, probe, measured, calls in _shown(variant.probes):
        mark = "" if probe.role is Role.VICTIM else "dim"
        shown = [phase for phase in phases if phase in measured]
        where = _where(probe)
        figures = zip(*(map(in_us, _figures(measured[phase])) for phase in shown), strict=True)
        texts = ("\n".join(phase.traits.word for phase in shown), *map("\n".join, figures))
        yield (
            TableCell(f"{name}\n{where}" if below and name != where else name, mark),
            TableCell("" if below else where, mark),
            TableCell(probe.state, _style(probe)),
            TableCell(format_count(calls), mark),
            *(TableCell(text, mark) for text in (texts if shown else [""] * 4)),
            _worst(variant, probe),
            TableCell(_in_flight(probe), mark),
        )


def _shown(probes: Sequence[RunProbe]) -> Iterator[tuple[str, RunProbe, Mapping[Phase, RunFigures], int]]:
    """Rows of a report on ``probes`` in their order: a name, the probe, its latencies, and its number of calls.

    Aggressors in one state that differ in their threads only have one row, ``NAME 1 … 16``.
    """

    def kind(probe: RunProbe) -> tuple[object, ...]:
        several = probe.role is Role.AGGRESSOR and probe.error is None and not _in_flight(probe)
        stem = probe.name.rpartition(" ")[0]
        return (probe.entry, stem, probe.state) if several and stem else (probe.name,)

    for _, group in groupby(probes, key=kind):
        first, *others = group
        name, phases = first.name, first.phases
        if others:
            name = f"{name} … {others[-1].name.rpartition(' ')[2]}"
            phases = {
                phase: figures.joined(other.phases[phase] for other in others) for phase, figures in phases.items()
            }
        yield name, first, phases, sum(probe.calls for probe in (first, *others))


def _early(variant: RunVariant) -> Iterator[str]:
    """A note for each probe whose work the GPU started before the call returned."""
    for probe in variant.probes:
        early, later = probe.phases.get(Phase.EARLY), probe.phases.get(Phase.START)
        if early is None or not early.count:
            continue
        yield (
            f"{probe.name}: the GPU started the work of {format_count(early.count)} of "
            f"{format_count(early.count + (0 if later is None else later.count))} calls before their return, "
            f"by {duration_ns(early.p50_ns)} at p50 (max {duration_ns(early.max_ns)})."
        )


def _slots(variant: RunVariant) -> Iterator[str]:
    """A note where victims of different contexts ran in slots."""
    if variant.slots and variant.probes:
        length = duration_ns(SLOT_NS)
        yield f"victims of different contexts ran in slots of {length}, so that none disturbed another."


def _gpu_state(variant: RunVariant) -> Iterator[str]:
    """A note with the GPU's clocks, where calls are made after long idle times."""
    if variant.gpu_state and any(probe.idles for probe in variant.probes):
        baseline, window = _state_text(variant.gpu_state.baseline), _state_text(variant.gpu_state.window)
        yield f"the GPU in the baseline {baseline}; between the calls {window}."


def _state_text(state: GpuState) -> str:
    texts = (
        "" if state.sm_clock_mhz is None else f"SM {_ends_text(state.sm_clock_mhz)} MHz",
        "/".join(state.performance_states),
        "" if state.power_w is None else f"{_ends_text(state.power_w)} W",
    )
    return ", ".join(text for text in texts if text) or "n/a"


def _ends_text(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.0f}" for end in ends)
    return low if low == high else f"{low}–{high}"


def _host_and_device(out: TextWriter, variants: Sequence[RunVariant]) -> None:
    """Host and GPU time of each operation that is timed on both, with the first call apart."""
    rows: list[TableRow] = []
    for variant in variants:
        for probe in variant.probes:
            on_gpu = {op.op: op for op in probe.ops if op.phase is Phase.GPU}
            calls = [op for op in probe.ops if op.phase is Phase.CALL and op.op in on_gpu]
            if calls:
                rows.append(TableHeading(f"{variant.variant}: {probe.name}", ""))
            for call in calls:
                sides = ((side.first_ns, side.p50_ns, side.p99_ns) for side in (call, on_gpu[call.op]))
                rows.append((f"  {call.op}", *(in_us(ns) for side in sides for ns in side)))
    if rows:
        out.line()
        out.paragraph("Each call's time on the host and on the GPU, in µs: the first call, then p50 and p99")
        figures = (f"{where}\n{figure}" for where in ("host", "GPU") for figure in ("first", "p50", "p99"))
        out.table((TableColumn("  operation"), *(TableColumn(name, right=True) for name in figures)), rows)


def _verdicts(out: TextWriter, variant: RunVariant) -> None:
    """The verdicts, those of one cause together with its remedy below them; then the blame experiment."""
    first = _first(variant)
    if variant.status != "ok":
        out.paragraph(f"{variant.status}: {variant.reason}", indent="  ", first=first, style="warn")
    hosts = {probe.name for probe in variant.probes if probe.role is Role.HOST}
    causes: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in variant.verdicts:
        # A quiet host control is the rule; its row says so.
        if verdict.probe not in hosts or verdict.kind is not VerdictKind.QUIET:
            causes.setdefault((verdict.cause, verdict.remedy), []).append(verdict)
    for (cause, remedy), verdicts in causes.items():
        for verdict in verdicts:
            word = f"{verdict.kind.look.word}: " if verdict.kind.is_stall else ""
            style = "" if verdict.kind is VerdictKind.QUIET else verdict.kind.look.style
            out.paragraph(verdict.head, indent="  ", first=first + word, style=style)
        if cause:
            out.paragraph(cause, indent="  ", first="  ")
        if remedy:
            out.paragraph(f"Remedy: {remedy}", indent="  ", first="  ")
    if variant.blame is not None:
        _blame(out, variant, variant.blame)
    elif any(verdict.proof is Proof.OPEN for verdict in variant.verdicts):
        out.paragraph("Next: --blame finds by experiment which aggressor it is.", indent="  ", first="  ")


def _first(variant: RunVariant) -> str:
    """The variant before what is said of it; nothing for probes that were selected by name."""
    # It loads numpy, which commands that show no result do not need.
    from stallprobes.measurement.plan import PROBES

    return "" if variant.variant == PROBES else f"{variant.variant}: "


def _blame(out: TextWriter, variant: RunVariant, blame: Blame) -> None:
    """The blame experiment: what was done, and its table."""
    out.paragraph(
        f"blame, {blame.rounds} rounds in {blame.seconds:.1f} s, switched {', '.join(blame.aggressors)} on and off:",
        indent="  ",
        first=_first(variant),
    )
    for line in blame_lines(blame, out.width - len(_BLAME_INDENT), out.printed):
        out.runs([(_BLAME_INDENT, ""), *line])


def _in_flight(probe: RunProbe) -> str:
    age_ns = probe.in_flight_ns
    return "" if age_ns is None or age_ns < IN_FLIGHT_NS else duration_ns(age_ns)


def _where(probe: RunProbe) -> str:
    return "host" if probe.context == "none" else f"{probe.context} · {probe.stream}"


def _style(probe: RunProbe) -> str:
    return _STATE_STYLES.get(probe.state, "") if probe.role is Role.VICTIM else "dim"


def _worst(variant: RunVariant, probe: RunProbe) -> TableCell:
    """Largest ratio of the verdicts on ``probe``, else of its medians; empty for aggressors."""
    if probe.role is Role.AGGRESSOR:
        return TableCell("")
    ratios = [v.ratio for v in variant.verdicts if v.probe == probe.name and v.ratio is not None]
    if not ratios:
        sides = [
            (probe.phases[phase].p50_ns, probe.baseline[phase].p50_ns) for phase in _SHOWN if phase in probe.baseline
        ]
        ratios = [now / max(quiet, 1) for now, quiet in sides if now is not None and quiet is not None]
    return TableCell(times(max(ratios))[1:] if ratios else "–", _style(probe))


def _figures(figures: RunFigures | None) -> tuple[float | None, float | None, float | None]:
    """p50, p99 and maximum in ns; None without calls."""
    return (None, None, None) if figures is None else (figures.p50_ns, figures.p99_ns, figures.max_ns)
