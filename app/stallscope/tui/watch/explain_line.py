"""The explanation of a line of a watched program: what it costs and where, its waits, its stack, and what helps."""

from __future__ import annotations

from stallprobes.units import duration_ns
from stallprobes.watch.division_text import (
    kernel_text,
    parts_text,
    percent,
    step_text,
    verdict_text,
)
from stallprobes.watch.limit_text import limit_text
from stallprobes.watch.line_text import (
    inner_place_text,
    line_text,
    place_text,
    remedy_text,
    sequence_texts,
    shown_waits,
    wait_text,
)
from stallprobes.watch.sentences import frame_text
from stallscope.tui.common.dialog import section
from stallscope.tui.common.printable_text import PrintableText
from stallscope.tui.watch.division_panel import ShownLine

# Largest number of kernels, those with most time, that the explanation of a program line lists.
_MOST_KERNELS = 5
# Largest number of waits, the costliest of a sequence (threads that take turns to call the driver), among which the
# explanation of a program line searches for the waits on this line.
_MOST_WAITS = 6


def explained_line(shown: ShownLine) -> PrintableText:
    """Everything known about a line, what it costs first."""
    line, sequence, process = shown.line, shown.sequence, shown.process
    text = PrintableText()
    text.append(f"{place_text(line, process)}\n\n", "bold reverse")
    samples = f"By {line.samples} samples of the time of its sequence, of which it has {percent(line.share.share)}."
    step = sequence.step
    of_step = "" if step is None else f" That is {duration_ns(round(line.cost.share * step.ns))} of each step."
    section(text, "What it costs", f"{line_text(line, process, sequence)}{of_step}\n{samples}")
    inner = [f"- {inner_place_text(place, line)}" for place in line.inner]
    section(text, "Where, by the innermost frame", "\n".join(inner))
    waits = [wait for wait in shown_waits(sequence, _MOST_WAITS) if wait.place == line.place]
    section(text, "Its waits", "\n".join(f"- {wait_text(wait, process, sequence)}" for wait in waits))
    kernels = [kernel for kernel in sequence.kernels if line.place is not None and kernel.place == line.place]
    named = (f"- {kernel_text(kernel, sequence)}" for kernel in kernels[:_MOST_KERNELS])
    section(text, "Kernels that it launches", "\n".join(named))
    section(text, "What helps", remedy_text(line, process, sequence))
    if line.stack is not None:
        frames = line.stack.python or line.stack.native
        section(text, "Call stack with most of it, the innermost frame first", "\n".join(map(frame_text, frames)))
    parts = ", ".join(words for _, words in parts_text(sequence))
    sentences = (
        verdict_text(sequence, process),
        *sequence_texts(sequence, process),
        f"Its time is: {parts}.",
        step_text(sequence),
        limit_text(sequence),
    )
    section(text, "Its sequence", "\n".join(filter(None, sentences)))
    return text
