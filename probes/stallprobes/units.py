"""Formatting of numbers, durations and ratios for tables and sentences: three significant digits and a unit."""

from __future__ import annotations

from collections.abc import Sequence

# Units of sizes (bytes), the largest first.
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def three(value: float) -> str:
    """``value`` with three significant digits and without an exponent."""
    # With one decimal, 99.96 would round to four digits.
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def duration(us: float | None) -> str:
    """``us`` microseconds as ``5.60 µs``, ``2.38 ms`` or ``1.25 s``; ``–`` for None."""
    if us is None:
        return "–"
    if abs(us) < 999.5:
        return f"{three(us)} µs"
    if abs(us) < 999_500:
        return f"{three(us / 1000)} ms"
    return f"{three(us / 1_000_000)} s"


def duration_ns(ns: float | None) -> str:
    """``ns`` nanoseconds as ``duration`` writes them; ``–`` for None."""
    return duration(None if ns is None else ns / 1000)


def in_us(ns: float | None) -> str:
    """``ns`` nanoseconds in microseconds without the unit, for a column whose title has it: ``5.60``, ``2380``; ``–``
    for None."""
    return "–" if ns is None else three(ns / 1000)


def in_ms(ns: float) -> str:
    """``ns`` nanoseconds in milliseconds without the unit, for a column whose title has it: ``155``, ``0.64``,
    ``<0.01``."""
    return "<0.01" if 0 < ns < 5_000 else three(ns / 1e6)


def rounded(value: float) -> float:
    """``value`` with three decimals, as documents have ratios."""
    return round(float(value), 3)


def format_count(value: int) -> str:
    """An integer with its digits in groups: ``12 345``."""
    return f"{value:,}".replace(",", " ")


def size_text(size: int) -> str:
    """A number of bytes: ``4 bytes``, ``1.5 KiB``, ``256 MiB``."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return plural(size, "byte")


def plural(number: int, noun: str) -> str:
    """``1 cell``, ``2 cells``, ``12 345 cells``."""
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"


def enumeration(names: Sequence[str]) -> str:
    """One or more names as ``A, B and C``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def times(ratio: float) -> str:
    """``ratio`` as ``×427`` or ``×1.3``."""
    return f"×{ratio:.0f}" if ratio >= 9.95 else f"×{ratio:.1f}"


def compact(value: float) -> str:
    """``value`` in at most four characters: ``1.0``, ``427``, ``2.3k``, ``14k``."""
    for size, unit in ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")):
        if value < 999.5 * size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return three(value)


def range_ns(low_ns: float, high_ns: float) -> str:
    """A range of nanoseconds as ``4.5–12.7 µs``, or ``4.5 µs–2.4 ms`` where one unit does not fit both ends."""
    low, high = _unit(low_ns), _unit(high_ns)
    if low_ns >= 0.095 * high[1]:
        return f"{_decimal(low_ns / high[1])}–{_decimal(high_ns / high[1])} {high[0]}"
    return f"{_decimal(low_ns / low[1])} {low[0]}–{_decimal(high_ns / high[1])} {high[0]}"


def _unit(ns: float) -> tuple[str, float]:
    """The unit of a range that ends at ``ns``, and its length in ns."""
    return next((unit for unit in (("µs", 1e3), ("ms", 1e6)) if ns < 999.5 * unit[1]), ("s", 1e9))


def _decimal(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"
