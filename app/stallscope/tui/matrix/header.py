"""The lines above the matrix, from the desk's state."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.matrix.matrix import Matrix
from stallscope.tui.matrix.cell_text import differences, tally
from stallscope.tui.matrix.controller import CheckRun, MatrixState
from stallscope.tui.matrix.grid import HeadView

_KINDS = {
    "failed": "failed",
    "starved": "starved",
    "stalled": "stalled",
    "slower": "slower",
    "host": "host noise",
    "unsure": "unsure",
    "quiet": "quiet",
    "invalid": "invalid",
    "unsupported": "not possible here",
    "missing": "not measured",
}


def headline(state: MatrixState, now_s: float) -> HeadView:
    """The view of ``state``; ``now_s`` is on the monotonic clock."""
    view = HeadView()
    if state.matrix_view is not None:
        matrix = state.matrix_view.matrix
        view = replace(
            view, gpu=_machine(matrix), simulated=matrix.simulated, about=_about(matrix, state.run is not None)
        )
        view = _where(view, state)
    if state.run is not None:
        return _running(view, state.run, now_s)
    note, style = _note(state)
    return replace(view, note=note, note_style=style)


def _machine(matrix: Matrix) -> str:
    """The GPU, and what drives it."""
    of = matrix.fingerprint
    if matrix.hosts:
        return f"{len(matrix.hosts)} machines · {of.get('gpu') or 'GPU not known'}"
    if matrix.simulated:
        seed = f"seed {matrix.sim_seed}" if matrix.sim_seed is not None else ""
        return " · ".join(part for part in (f"simulated GPU, profile {matrix.profile or 'h200'}", seed) if part)
    parts = [str(of.get("gpu") or "GPU not known")]
    parts += [f"{words} {of[key]}" for key, words in (("driver", "driver"), ("cuda", "CUDA")) if of.get(key)]
    return " · ".join(parts)


def _about(matrix: Matrix, running: bool) -> str:
    parts = [f"{'quick' if matrix.quick else 'whole'} check", f"order by seed {matrix.seed}"]
    if not running:
        parts += [f"{matrix.repeats} repeats"] if matrix.repeats else []
        parts.append(f"{matrix.seconds:.0f} s")
    parts.append(matrix.started_at[:16].replace("T", " ") + matrix.started_at[19:])
    parts.append(f"{len(matrix.rows)} × {len(matrix.columns)} cells")
    return " · ".join(parts)


def _where(view: HeadView, state: MatrixState) -> HeadView:
    """Which file it is, what it is compared with, whether it is whole."""
    assert state.matrix_view is not None
    about = view.about
    if state.origin:
        about = f"{state.origin} · {about}"
    if state.comparison is not None:
        # What changed is asked for; how it was measured stands in its file.
        about = f"{state.against} → {state.origin or 'this check'} · {tally(state.comparison)}"
    words, style = ("not saved", "warn") if state.unsaved else ("", "")
    if state.matrix_view.matrix.interrupted and state.run is None:
        words, style = f"INTERRUPTED{', ' + words if words else ''}", "notice"
    return replace(view, about=about, state=words, state_style=style)


def _running(view: HeadView, run: CheckRun, now_s: float) -> HeadView:
    minutes, seconds = divmod(int(now_s - run.began_s), 60)
    state, style = f"● measuring {minutes}:{seconds:02}", "good"
    if run.stopping:
        state, style = "stopping …", "warn"
    words = run.text
    if run.total:
        left = "time left not known yet" if run.left_s is None else f"{run.left_s:.0f} s left"
        words = f"{left} · {run.done} of {run.total} · {run.text}"
    share = min(1.0, run.done / run.total) if run.total else 0.0
    return replace(view, state=state, state_style=style, share=share, doing=words)


def _note(state: MatrixState) -> tuple[str, str]:
    """The third line: what is being done, what was said last, what differs, or what was found."""
    if state.busy:
        return f"{state.busy} …", "warn"
    if state.note:
        return state.note, "bad" if state.bad else "accent"
    if state.comparison is not None:
        found = differences(state.comparison)
        if not found:
            return "The fingerprints of both are the same.", "dim"
        return f"The fingerprints differ: {'; '.join(found)}.", "warn"
    if state.matrix_view is None:
        return "", "dim"
    counts = state.matrix_view.counts()
    return ", ".join(f"{counts[kind]} {words}" for kind, words in _KINDS.items() if counts.get(kind)), "dim"
