"""From the command line to the screen and back: what has to be right before it opens, and what is left to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.cli import diagnostics
from stallscope.cli.diagnostics import CommandError, ExitCode
from stallscope.report.text import speaks_utf8
from stallscope.tui import settings

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options
    from stallprobes.live.recording import Recorder
    from stallscope.tui.sources.live import Live
    from stallscope.tui.sources.replay import Replay


def live(gpu: str | None, simulated: Options, allow_shared: bool, record: Path | None, ascii_only: bool) -> int:
    """Run the monitor on an engine, simulated if ``simulated`` names a profile. Returns the exit code.

    Raises CommandError.
    """
    known = _prepared(ascii_only)
    recorder = None if record is None else _recorder(record)
    from stallscope.tui import prewarm

    spare = prewarm.engine(simulated.profile is not None)
    survey = prewarm.survey() if simulated.profile is None else None

    def make() -> Live:
        from stallscope.tui.sources.live import Live, Wish

        wish = Wish(
            gpu=gpu,
            sim=simulated.profile,
            seed=simulated.seed,
            sim_set=simulated.sim_set,
            allow_shared=allow_shared,
        )
        source = Live(wish, survey=survey, spare=spare)
        source.start()
        return source

    try:
        code = _show(make, known, recorder)
    finally:
        if spare is not None:
            spare.close()
    if recorder is not None:
        recorder.close()
        diagnostics.print_message(recorder.problem or f"recorded to {recorder.path}")
    return code


def _recorder(path: Path) -> Recorder:
    from stallprobes.errors import RecordingError
    from stallprobes.live.recording import Recorder

    try:
        return Recorder(path)
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error


def replay(file: Path, ascii_only: bool) -> int:
    """The monitor on a recording; the exit code. Raises CommandError."""
    known = _prepared(ascii_only)
    from stallprobes.errors import RecordingError
    from stallprobes.live.recording import Recording
    from stallscope.tui.sources.replay import Replay

    try:
        recording = Recording(file)
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    code = _show(lambda: Replay(recording), known, None)
    if recording.cut_off:
        diagnostics.print_message(f"{file} ends in the middle; all that came before was shown")
    return code


def _prepared(ascii_only: bool) -> settings.Settings:
    why = diagnostics.screen_obstacle()
    if why is not None:
        raise CommandError(ExitCode.USAGE, why)
    try:
        known = settings.load()
    except settings.SettingsError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    return settings.with_ascii(known, ascii_only or known.ascii or not speaks_utf8())


def _show(make: Callable[[], Live | Replay], known: settings.Settings, recorder: Recorder | None) -> int:
    from stallscope.tui.app import StallscopeApp

    app = StallscopeApp(make, known, recorder)
    try:
        app.run()
    finally:
        app.close()
    if app.last_words is not None:
        diagnostics.print_message(app.last_words)
    return app.return_code or 0
