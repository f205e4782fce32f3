"""View of the lines above the matrix, from the controller's state."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.matrix.matrix import Matrix
from stallprobes.wording import check_wording, comparison_wording
from stallscope.tui.matrix.controller import CheckRun, MatrixState
from stallscope.tui.matrix.grid import MatrixHeadView


def head_view(state: MatrixState, now_s: float) -> MatrixHeadView:
    """The view of ``state``; ``now_s`` is on the monotonic clock."""
    view = MatrixHeadView()
    if state.matrix_view is not None:
        matrix = state.matrix_view.matrix
        headline = state.matrix_view.headline
        view = replace(
            view,
            machine=check_wording.profile_name(matrix) if matrix.simulated else check_wording.machine_name(matrix),
            simulated=matrix.simulated,
            about=_about(state, matrix),
            headline=() if headline is None or state.run is not None else headline.lines,
        )
        view = _with_file_state(view, state)
    if state.run is not None:
        return _running(view, state.run, now_s)
    note, style = _note(state)
    return replace(view, note=note, note_style=style)


def _about(state: MatrixState, matrix: Matrix) -> str:
    """File, extent, order, duration, time and size of the check; with a comparison, what changed."""
    if state.comparison is not None:
        return (
            f"{state.against} → {state.origin or 'this check'} · {comparison_wording.change_counts(state.comparison)}"
        )
    parts = [state.origin] if state.origin else []
    parts += ["quick check" if matrix.quick else "full check", f"order by seed {matrix.seed}"]
    if state.run is None:
        parts += [check_wording.repeat_count(matrix)] if matrix.repeats else []
        parts.append(f"{matrix.seconds:.0f} s")
    parts.append(matrix.started_at[:16].replace("T", " ") + matrix.started_at[19:])
    parts.append(f"{len(matrix.rows)} × {len(matrix.columns)} cells")
    return " · ".join(parts)


def _with_file_state(view: MatrixHeadView, state: MatrixState) -> MatrixHeadView:
    """``view`` with whether the check is saved and whole."""
    assert state.matrix_view is not None
    words, style = ("not saved", "warn") if state.unsaved else ("", "")
    if state.matrix_view.matrix.interrupted and state.run is None:
        words, style = f"INTERRUPTED{', ' + words if words else ''}", "notice"
    return replace(view, state=words, state_style=style)


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


def _note(state: MatrixState) -> tuple[str, str]:
    """The last line and its style: the file job that runs, the last message, or the differences of a comparison."""
    if state.busy:
        return f"{state.busy} …", "warn"
    if state.note:
        return state.note, "bad" if state.failed else "accent"
    if state.comparison is not None:
        found = [comparison_wording.difference_line(one) for one in state.comparison.differences]
        if not found:
            return "The fingerprints do not differ.", "dim"
        return f"The fingerprints differ: {'; '.join(found)}.", "warn"
    return "", "dim"
