"""Sentences on aggressors beside a watched program."""

from __future__ import annotations

from stallprobes.units import duration_ns
from stallprobes.watch.beside.result import (
    BesideOutcome,
    BesideResult,
    BesideRow,
    BesideUnit,
    RatioInterval,
)
from stallprobes.watch.sentences import frame_text

# Smallest change of the SM clock, as a share, that may explain slower steps.
_CLOCK_CHANGE = 0.03


def row_text(row: BesideRow, unit: BesideUnit) -> str:
    """The effect of an aggressor as a sentence."""
    ratio = row.ratio
    if ratio is None:
        return f"Beside {row.aggressor}: not known ({row.reason})."
    if row.outcome is BesideOutcome.UNKNOWN:
        return f"Beside {row.aggressor}: not known ({row.reason}): {ratio_text(ratio)}."
    what = "a step takes" if unit is BesideUnit.STEP else "it comes from one wait to the next in"
    if row.outcome is BesideOutcome.SAME:
        return f"Beside {row.aggressor} {what} as long as without it: {ratio_text(ratio)}."
    change = f"{change_text(row.off.p50_ns, row.on.p50_ns)}, {ratio_text(ratio)}"
    return f"Beside {row.aggressor} {what} {change}.{grown_text(row)}{_clock_text(row)}"


def grown_text(row: BesideRow) -> str:
    """What of the program's time grew, as sentences after a blank; "" for nothing."""
    grew, line, text = row.grew, row.line, ""
    if grew is not None:
        text = f" Of its time, {grew.part.word} grew most: from {100 * grew.off:.0f} to {100 * grew.on:.0f} %."
    if line is not None:
        text += f" Of its lines, {frame_text(line.place)} grew most: {_line_times(row)}."
    return text


def grown_label(row: BesideRow) -> str:
    """What grew, in short: ``others' time-slices 0 → 55 %, train.py:42 in step 5.60 → 19.6 ms``; "" for nothing."""
    grew, texts = row.grew, []
    if grew is not None:
        texts.append(f"{grew.part.word} {100 * grew.off:.0f} → {100 * grew.on:.0f} %")
    if row.line is not None:
        texts.append(f"{frame_text(row.line.place)} {_line_times(row)}")
    return ", ".join(texts)


def _line_times(row: BesideRow) -> str:
    """The time of a step at the line that grew: ``5.60 → 19.6 ms``."""
    assert row.line is not None
    sides = ((row.line.off, row.off.p50_ns), (row.line.on, row.on.p50_ns))
    return change_text(*(None if step is None else round(share * step) for share, step in sides))


def ratio_text(ratio: RatioInterval) -> str:
    """A ratio with its interval: ``×1.40 (1.35 to 1.46)``."""
    return f"×{_decimal(ratio.ratio)} ({_decimal(ratio.low)} to {_decimal(ratio.high)})"


def factor_text(row: BesideRow) -> str:
    """The ratio of a row: ``×1.40``; a dash without one."""
    return "–" if row.ratio is None else f"×{_decimal(row.ratio.ratio)}"


def interval_text(row: BesideRow) -> str:
    """The interval of a row's ratio: ``1.35–1.46``; "" without one."""
    return "" if row.ratio is None else f"{_decimal(row.ratio.low)}–{_decimal(row.ratio.high)}"


def change_text(off_ns: int | None, on_ns: int | None) -> str:
    """Two times: ``14.1 → 19.8 ms``, with one unit where both have the same; a dash where they are not known."""
    if off_ns is None or on_ns is None:
        return "–"
    off, on = duration_ns(off_ns), duration_ns(on_ns)
    value, _, unit = off.rpartition(" ")
    return f"{value if on.endswith(f' {unit}') else off} → {on}"


def beside_texts(result: BesideResult) -> list[str]:
    """Sentences below the table: what grew, whether the clock changed, the unit, the guard, and what failed."""
    texts = []
    if result.unit is BesideUnit.WAIT and result.rows:
        texts.append(
            "The program has no regular step: what is timed is the mean time from one of its calls that wait or copy "
            "to the next, in turns of a second."
        )
    for row in result.rows:
        if row.outcome is BesideOutcome.UNKNOWN:
            texts.append(row_text(row, result.unit))
        elif text := f"{grown_text(row)}{_clock_text(row)}".strip():
            texts.append(f"{row.aggressor}: {text[:1].lower()}{text[1:]}")
    clocks = [row.on.sm_clock_mhz for row in result.rows if row.on.sm_clock_mhz is not None]
    if clocks and not any(map(_clock_text, result.rows)):
        texts.append(f"The SM clock was about the same in all turns ({clocks[0]:.0f} MHz).")
    if result.on_ns:
        texts.append(
            f"An aggressor ran for {duration_ns(result.on_ns)}. What bounds the program is of the time without one, as "
            "far as there is such time; its lines and calls are of all the time."
        )
    if result.free_bytes is not None and result.least_free_bytes is not None:
        free, least = (f"{count / (1 << 30):.1f}" for count in (result.free_bytes, result.least_free_bytes))
        texts.append(f"At least {free} GiB of the GPU's memory were free; aggressors end at {least} GiB.")
    return [*texts, *([result.problem] if result.problem else [])]


def _clock_text(row: BesideRow) -> str:
    """A changed SM clock beside slower steps as a sentence after a blank; "" for none."""
    off, on = row.off.sm_clock_mhz, row.on.sm_clock_mhz
    if not off or not on or abs(on / off - 1) < _CLOCK_CHANGE:
        return ""
    return f" The SM clock went from {off:.0f} to {on:.0f} MHz, which may be a part of it."


def _decimal(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
