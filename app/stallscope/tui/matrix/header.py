"""The lines above the matrix: machine, check, headline, progress or note."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from stallprobes.matrix.matrix import Matrix
from stallprobes.wording import check_wording
from stallscope.report.columns import display_width
from stallscope.tui.common.bars import HeadView, titled
from stallscope.tui.common.lines import Line, Run, cut, length
from stallscope.tui.matrix.controller import CheckRun, MatrixState

# HEAD_HEIGHT: usual height (lines) of the header, with only the first line of the headline. TALL_HEAD_HEIGHT: height
# (lines) of the header on a high screen, with all lines of the headline.
HEAD_HEIGHT, TALL_HEAD_HEIGHT = 3, 6


def head_view(state: MatrixState, now_s: float, replayed: bool = False) -> HeadView:
    """The header of ``state``; ``now_s`` is on the monotonic clock. ``replayed``: beside a recording no check runs."""
    check, run = state.matrix_view, state.run
    simulated, machine, about = False, "", ""
    headline: Sequence[Run] = ()
    if check is not None:
        matrix, simulated = check.matrix, check.matrix.simulated
        machine = check_wording.profile_name(matrix) if simulated else check_wording.machine_name(matrix)
        about, headline = _about(state, matrix), (check.headline or ()) if run is None else ()
    note = _note(state, replayed)
    return titled(
        simulated,
        machine,
        _state(state, now_s),
        lambda width, height: _lines(about, headline, run, note, width, height),
    )


def _state(state: MatrixState, now_s: float) -> Run:
    """State of the check with its style: whether it runs, and whether it is complete and saved."""
    run = state.run
    if run is not None and run.stopping:
        return "stopping …", "warn"
    if run is not None:
        minutes, seconds = divmod(int(now_s - run.began_s), 60)
        return f"● measuring {minutes}:{seconds:02}", "good"
    words, style = ("not saved", "warn") if state.unsaved else ("", "")
    if state.matrix_view is not None and state.matrix_view.matrix.interrupted:
        words, style = f"INTERRUPTED{', ' + words if words else ''}", "notice"
    return ("SAVED CHECK", "notice") if state.unmeasured else (words, style)


def _lines(about: str, headline: Sequence[Run], run: CheckRun | None, note: Run, width: int, height: int) -> list[Line]:
    """Below the first line: the check, the headline where it fits, and the progress or note."""
    second: Line = [(f" {cut(about, width - 2)}", "dim")]
    last: Line = [(f" {cut(note[0], width - 2)}", note[1])] if run is None else _progress_line(run, width)
    if height >= TALL_HEAD_HEIGHT:
        lines: list[Line] = [_headline_line(label, text, width) for label, text in headline]
        blank: list[Line] = [[("", "")]] * (TALL_HEAD_HEIGHT - HEAD_HEIGHT - len(lines))
        return [second, *lines, *blank, last]
    if run is None and headline and not note[0]:
        return [second, _headline_line(*headline[0], width)]
    if run is not None or display_width(note[0]) <= width - 2:
        return [second, last]
    # What happened is more urgent than how it was measured.
    folded = textwrap.wrap(note[0], width - 2, max_lines=2, placeholder=" …", break_on_hyphens=False)
    return [[(f" {text}", note[1])] for text in folded]


def _headline_line(label: str, text: str, width: int) -> Line:
    return [(f" {label:<9}", "dim"), (cut(text, width - 12), "")]


def _progress_line(run: CheckRun, width: int) -> Line:
    share, bar = min(1.0, run.done / run.total) if run.total else 0.0, min(30, width // 4)
    full, progress = round(share * bar), run.text
    if run.total:
        left = "time left not known yet" if run.left_s is None else f"{run.left_s:.0f} s left"
        progress = f"{left} · {run.done} of {run.total} · {run.text}"
    line: Line = [(" ", ""), ("█" * full, "heat"), ("░" * (bar - full), "faint"), (f" {share:4.0%}  ", "strong")]
    line.append((cut(progress, max(0, width - length(line) - 1)), ""))
    return line


def _about(state: MatrixState, matrix: Matrix) -> str:
    """File, extent, order, duration, time and size of the check."""
    parts = [state.origin] if state.origin else []
    parts += ["quick check" if matrix.quick else "full check", f"order by seed {matrix.seed}"]
    if state.run is None:
        parts += [check_wording.repeat_count(matrix)] if matrix.repeats else []
        parts.append(f"{matrix.seconds:.0f} s")
    parts.append(matrix.started_at[:16].replace("T", " ") + matrix.started_at[19:])
    parts.append(f"{len(matrix.rows)} × {len(matrix.columns)} cells")
    return " · ".join(parts)


def _note(state: MatrixState, replayed: bool) -> Run:
    """The last line and its style: the file job that runs, or the last message."""
    if state.busy:
        return f"{state.busy} …", "warn"
    if state.note:
        return state.note, "bad" if state.failed else "accent"
    if state.unmeasured:
        return (
            f"The last saved check, not measured now.{'' if replayed else ' r runs a check of this machine.'}",
            "warn",
        )
    return "", "dim"
