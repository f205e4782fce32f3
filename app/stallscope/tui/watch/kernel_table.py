"""The table of the kernels of a watched program: how much of its GPU time each takes, and where it is launched."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.units import format_count, three
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.division_text import percent, sequence_text
from stallprobes.watch.limit_text import limit_label
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.reading.kernel_names import kernel_label
from stallprobes.watch.sentences import frame_text
from stallscope.report.columns import display_width, padded
from stallscope.tui.common.lines import Line, cut, rule, short_duration
from stallscope.tui.watch.division_panel import shown_sequences_of

# Columns of figures: title, width (columns), and smallest panel width (columns) that shows the column.
_COLUMNS = (
    ("share", 6, 0),
    ("per s", 9, 0),
    ("mean", 8, 0),
    ("±", 8, 96),
    ("blocks", 15, 112),
    ("waves", 7, 140),
    ("regs", 5, 130),
)
# Columns of a title's rule beside its texts.
_ROOM_OF_RULE = 8
# Share (percent) of the room beside the figures that the kernels' names get. The lines that launch them get the rest.
_OF_NAMES = 60


def kernel_lines(findings: WatchFindings | None, width: int, height: int) -> list[Line]:
    """A title, and as many kernels as fit of the first sequence (threads that take turns to call the driver), the one
    with most time first."""
    sequence, process, _ = next(shown_sequences_of(findings), (None, None, ""))
    if sequence is None or process is None:
        return [rule("kernels", width)]
    kernels = sequence.kernels[: max(height - 2, 0)]
    left_out = len(sequence.kernels) - len(kernels)
    title = f"kernels of {sequence_text(sequence, process)}"
    note = f"{left_out} more" if left_out else ""
    longer = " · ".join(filter(None, (limit_label(sequence), note)))
    has_room = display_width(title) + display_width(longer) + _ROOM_OF_RULE < width
    out = [rule(title, width, longer if has_room else note)]
    if not sequence.kernels:
        return [*out, [(" none recorded so far", "dim")]][:height]
    columns = [column for column in _COLUMNS if width >= column[2]]
    room = width - 2 - sum(size for _, size, _ in columns)
    names = room * _OF_NAMES // 100
    head: Line = [(f" {padded('kernel', names)}", "strong")]
    head += [(f"{name:>{size}}", "dim") for name, size, _ in columns]
    out.append([*head, (cut(" launched at", room - names), "dim")])
    for kernel in kernels:
        out.append(_row(kernel, sequence, columns, names, room - names))
    return out[:height]


def _row(
    kernel: KernelTime, sequence: ProgramSequence, columns: Sequence[tuple[str, int, int]], names: int, places: int
) -> Line:
    rate = sequence.per_second(kernel.count)
    blocks = [format_count(count) for count in dict.fromkeys((kernel.least_blocks, kernel.most_blocks)) if count]
    figures = {
        "share": percent(kernel.share),
        "per s": format_count(round(rate)) if rate >= 1 else f"{rate:.1f}",
        "mean": short_duration(kernel.mean_ns),
        "±": "<1 %" if 100 * kernel.deviation_ns < kernel.mean_ns else short_duration(kernel.deviation_ns),
        "blocks": "-".join(blocks),
        "waves": "" if kernel.waves is None else three(kernel.waves),
        "regs": str(kernel.registers) if kernel.registers else "",
    }
    line: Line = [(f" {padded(cut(kernel_label(kernel.name) or '?', names - 1), names)}", "")]
    line += [
        (f"{cut(figures[title], size - 1):>{size}}", "" if title == "share" else "dim") for title, size, _ in columns
    ]
    place = "" if kernel.place is None else frame_text(kernel.place) if kernel.place.file else "backward pass"
    return [*line, (cut(f" {place}", places), "")]
