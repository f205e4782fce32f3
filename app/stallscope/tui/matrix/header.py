"""The lines above the matrix: machine, check, headline, progress or note."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace

from textual.reactive import var

from stallprobes.matrix.matrix import Matrix
from stallprobes.wording import check_wording
from stallscope.report.columns import display_width
from stallscope.tui.common.bars import ScreenHead
from stallscope.tui.common.lines import Line, cut, length
from stallscope.tui.matrix.controller import CheckRun, MatrixState

# HEAD_HEIGHT: usual height (lines) of the header, with only the first line of the headline. TALL_HEAD_HEIGHT: height
# (lines) of the header on a high screen, with all lines of the headline.
HEAD_HEIGHT, TALL_HEAD_HEIGHT = 3, 6


@dataclass(frozen=True)
class MatrixHeadView:
    """View of the header: machine, check, headline (label and text of each line), progress and note.

    ``share`` is the part of a running check that is done, from 0 to 1; None when none runs.
    """

    machine: str = ""
    simulated: bool = False
    state: str = ""
    state_style: str = ""
    about: str = ""
    headline: tuple[tuple[str, str], ...] = ()
    share: float | None = None
    progress: str = ""
    note: str = ""
    note_style: str = "dim"


class MatrixHead(ScreenHead):
    """Draws the header in HEAD_HEIGHT lines, or with the whole headline in TALL_HEAD_HEIGHT lines."""

    view = var(MatrixHeadView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Lines of the header."""
        view = self.view
        first = self.title(view.simulated, view.machine, (view.state, view.state_style), width)
        return [first, *head_lines(view, width, height)]


def head_lines(view: MatrixHeadView, width: int, height: int = HEAD_HEIGHT) -> list[Line]:
    """Below the first line: the check, the headline where it fits, and the progress or note."""
    second: Line = [(f" {cut(view.about, width - 2)}", "dim")]
    if height >= TALL_HEAD_HEIGHT:
        headline: list[Line] = [_headline_line(label, text, width) for label, text in view.headline]
        blank: list[Line] = [[("", "")]] * (TALL_HEAD_HEIGHT - HEAD_HEIGHT - len(headline))
        note: Line = [(f" {cut(view.note, width - 2)}", view.note_style)]
        return [second, *headline, *blank, note if view.share is None else _progress_line(view, width)]
    if view.share is not None:
        return [second, _progress_line(view, width)]
    if view.note or not view.headline:
        if display_width(view.note) <= width - 2:
            return [second, [(f" {view.note}", view.note_style)]]
        # What happened is more urgent than how it was measured.
        folded = textwrap.wrap(view.note, width - 2, max_lines=2, placeholder=" …", break_on_hyphens=False)
        return [[(f" {text}", view.note_style)] for text in folded]
    return [second, _headline_line(*view.headline[0], width)]


def _headline_line(label: str, text: str, width: int) -> Line:
    return [(f" {label:<9}", "dim"), (cut(text, width - 12), "")]


def _progress_line(view: MatrixHeadView, width: int) -> Line:
    share, bar = view.share or 0.0, min(30, width // 4)
    full = round(share * bar)
    line: Line = [(" ", ""), ("█" * full, "heat"), ("░" * (bar - full), "faint"), (f" {share:4.0%}  ", "strong")]
    line.append((cut(view.progress, max(0, width - length(line) - 1)), ""))
    return line


def head_view(state: MatrixState, now_s: float, replayed: bool = False) -> MatrixHeadView:
    """The view of ``state``; ``now_s`` is on the monotonic clock. ``replayed``: beside a recording no check runs."""
    view = MatrixHeadView()
    if state.matrix_view is not None:
        matrix = state.matrix_view.matrix
        headline = state.matrix_view.headline
        words, style = ("not saved", "warn") if state.unsaved else ("", "")
        if matrix.interrupted and state.run is None:
            words, style = f"INTERRUPTED{', ' + words if words else ''}", "notice"
        if state.unmeasured and state.run is None:
            words, style = "SAVED CHECK", "notice"
        view = replace(
            view,
            machine=check_wording.profile_name(matrix) if matrix.simulated else check_wording.machine_name(matrix),
            simulated=matrix.simulated,
            state=words,
            state_style=style,
            about=_about(state, matrix),
            headline=() if headline is None or state.run is not None else headline,
        )
    if state.run is not None:
        return _running(view, state.run, now_s)
    note, style = _note(state, replayed)
    return replace(view, note=note, note_style=style)


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


def _running(view: MatrixHeadView, run: CheckRun, now_s: float) -> MatrixHeadView:
    minutes, seconds = divmod(int(now_s - run.began_s), 60)
    state, style = f"● measuring {minutes}:{seconds:02}", "good"
    if run.stopping:
        state, style = "stopping …", "warn"
    progress = run.text
    if run.total:
        left = "time left not known yet" if run.left_s is None else f"{run.left_s:.0f} s left"
        progress = f"{left} · {run.done} of {run.total} · {run.text}"
    share = min(1.0, run.done / run.total) if run.total else 0.0
    return replace(view, state=state, state_style=style, share=share, progress=progress)


def _note(state: MatrixState, replayed: bool) -> tuple[str, str]:
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
