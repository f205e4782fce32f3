"""The explanation of a line of a watched program: what it costs and where, its waits, its stack, and what helps."""

from __future__ import annotations

from stallprobes.units import duration_ns
from stallprobes.watch import division_text, limit_text, line_text, sentences
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
    text.append(f"{line_text.place_text(line, process)}\n\n", "bold reverse")
    share = division_text.percent(line.share.share)
    samples = f"By {line.samples} samples of the time of its sequence, of which it has {share}."
    step = sequence.step
    of_step = "" if step is None else f" That is {duration_ns(round(line.cost.share * step.ns))} of each step."
    section(text, "What it costs", f"{line_text.line_text(line, process, sequence)}{of_step}\n{samples}")
    inner = [f"- {line_text.inner_place_text(place, line)}" for place in line.inner]
    section(text, "Where, by the innermost frame", "\n".join(inner))
    waits = [wait for wait in line_text.shown_waits(sequence, _MOST_WAITS) if wait.place == line.place]
    section(text, "Its waits", "\n".join(f"- {line_text.wait_text(wait, process, sequence)}" for wait in waits))
    kernels = [kernel for kernel in sequence.kernels if line.place is not None and kernel.place == line.place]
    named = (f"- {division_text.kernel_text(kernel, sequence)}" for kernel in kernels[:_MOST_KERNELS])
    section(text, "Kernels that it launches", "\n".join(named))
    section(text, "What helps", line_text.remedy_text(line, process, sequence))
    if line.stack is not None:
        frames = line.stack.python or line.stack.native
        section(
            text, "Call stack with most of it, the innermost frame first", "\n".join(map(sentences.frame_text, frames))
        )
    parts = ", ".join(words for _, words in division_text.parts_text(sequence))
    texts = (
        division_text.verdict_text(sequence, process),
        *line_text.sequence_texts(sequence, process),
        f"Its time is: {parts}.",
        division_text.step_text(sequence),
        limit_text.limit_text(sequence),
    )
    section(text, "Its sequence", "\n".join(filter(None, texts)))
    return text
