"""Lines of a verdict: its figures, its cause and its remedy."""

from __future__ import annotations

from collections.abc import Mapping

from stallprobes.latency.ratio import Quantile
from stallprobes.units import duration_ns, range_ns, times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict
from stallscope.tui.common.lines import Line, cut

# Width (columns) of the label ("cause", "remedy", …) at the beginning of a line about a verdict.
LABEL = 10
# Label of the line with a verdict's cause, by how well the cause is proven. With a stronger proof, the label is
# "because".
_LABELS = {Proof.NONE: "cause", Proof.OPEN: "cause", Proof.PROBABLE: "probably"}
# Kinds of verdicts whose line shows the verdict's headline in place of the baseline and the present latency. Exception:
# for UNSTEADY, the line shows the range of the latency if the range is known.
_OTHER_FIGURES = (VerdictKind.FAILED, VerdictKind.GPU_TIME, VerdictKind.OVERHEAD, VerdictKind.UNSTEADY)


def figures(verdict: Verdict) -> str:
    """The figure that changed: ``wait 5.60 µs → 1.92 ms  ×343``; p50 is not named."""
    if verdict.kind is VerdictKind.UNSTEADY and verdict.range_ns is not None:
        return f"{verdict.phase} p50 {range_ns(*verdict.range_ns)}"
    if verdict.kind in _OTHER_FIGURES:
        return verdict.head.removeprefix(f"{verdict.probe}: ")
    what = [] if verdict.phase is None else [verdict.phase.traits.word]
    what += [verdict.quantile] if verdict.quantile is Quantile.P99 else []
    before = "" if verdict.baseline_ns is None else f"{duration_ns(verdict.baseline_ns)} → "
    if verdict.now_ns is None:
        now = "fewer than 3 calls in 0.5 s"
    else:
        now = duration_ns(verdict.now_ns) + (" in flight" if verdict.quantile is Quantile.IN_FLIGHT else "")
    ratio = "" if verdict.ratio is None else f"  {times(verdict.ratio)}"
    return f"{' '.join((*what, verdict.label)).strip()} {before}{now}{ratio}"


def explanation_lines(
    verdict: Verdict, width: int, keys_of: Mapping[str, str] | None = None, remedy_key: str = "", blame_key: str = ""
) -> list[Line]:
    """The cause and the remedy of a verdict in a line each, as far as they are known.

    ``keys_of`` are the keys of probes by name; ``remedy_key`` measures the remedy, ``blame_key`` finds a cause that is
    not known, each "" where it does not.
    """
    lines: list[Line] = []
    if verdict.short_cause:
        label = _label(_LABELS.get(verdict.proof, "because"))
        lines.append([*label, (_cause(verdict, keys_of or {}, width), "")])
    if verdict.short_remedy:
        label = _label(f"{remedy_key} remedy" if remedy_key else "remedy", remedy_key)
        lines.append([*label, (cut(verdict.short_remedy, width - LABEL - 1), "")])
    elif verdict.proof is Proof.OPEN and blame_key:
        label = _label(f"{blame_key} blame", blame_key)
        lines.append([*label, ("finds which of them it is, by experiment", "")])
    return lines


def _cause(verdict: Verdict, keys_of: Mapping[str, str], width: int) -> str:
    """The short cause with its aggressors: their names if they fit, else their keys."""
    room, text = width - LABEL - 1, verdict.short_cause
    if not verdict.aggressors:
        return cut(text, room)
    prefix = "of " if verdict.proof in (Proof.RULE, Proof.SWITCHING, Proof.BLAME) else ""
    names = [keyed(name, keys_of) for name in verdict.aggressors]
    keys = [_key(name, keys_of) for name in verdict.aggressors]
    for labels in (names, keys):
        if not all(labels):
            continue
        words = (
            f"{text}; {' or '.join(labels)}"
            if verdict.proof is Proof.OPEN
            else f"{prefix}{' or '.join(labels)}: {text}"
        )
        if len(words) <= room:
            return words
    return cut(text, room)


def _key(name: str, keys_of: Mapping[str, str]) -> str:
    """The key of an aggressor, of the first of several threads; "" where it has none."""
    return (keys_of.get(name) or keys_of.get(f"{name} 1") or "").strip()


def keyed(name: str, keys_of: Mapping[str, str]) -> str:
    """An aggressor after its key, if it has one."""
    return f"{_key(name, keys_of)} {name}".lstrip()


def _label(text: str, key: str = "") -> Line:
    """The begin of a line, ``key`` in the style of keys."""
    rest = f"{text.removeprefix(key):<{LABEL - 1 - len(key)}}"
    return [(" ", ""), *([(key, "key")] if key else []), (rest, "dim")]
