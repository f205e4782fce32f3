"""The screen program as a command runs it: checks before it opens, messages after it has closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stallprobes.files import input_file, user_state
from stallprobes.foreign_text import printable_lines
from stallscope.cli import output_files
from stallscope.cli.process import diagnostics, limits
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.report.text import speaks_utf8
from stallscope.tui import settings

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options
    from stallprobes.recording.recorder import Recorder
    from stallscope.tui.demo.tour import DemoTour
    from stallscope.tui.sources.live import LiveSource
    from stallscope.tui.sources.source import ScreenSource


def run_live(
    session: Options,
    allow_shared: bool,
    record: Path | None,
    ascii_only: bool,
    tour: DemoTour | None = None,
    attach: Callable[[int], int] | None = None,
) -> int:
    """Run the monitor with an engine, with ``tour`` the demo, and return the exit code.

    ``session.profile`` is the profile of the simulated GPU, None for a real one. ``attach`` attaches the process that
    was chosen in the monitor, once the engine has ended, and returns the exit code. Raises CommandError.
    """
    known = load_settings(ascii_only)
    recorder = None
    if record is not None:
        from stallprobes.recording.recorder import Recorder

        output_files.require_new_file("--record", record)
        recorder = Recorder(record)
    from stallscope.cli.process import prewarm

    spare = prewarm.start_engine(session.profile is not None)
    survey = prewarm.start_survey() if session.profile is None else None

    def create_source() -> LiveSource:
        from stallscope.tui.sources.live import LiveSource

        source = LiveSource(
            session,
            first=None if tour is None else tour.first_probe_set(),
            sharing_allowed=allow_shared,
            gpm_counters=known.gpm_counters,
            survey=survey,
            spare=spare,
        )
        source.start()
        return source

    try:
        code, pid = run_app(create_source, known, recorder, "monitor" if tour is None else "demo", tour)
    finally:
        if spare is not None:
            spare.close()
        if recorder is not None:
            recorder.close()
    code = code if recorder is None else _report_recording(recorder, code)
    if attach is None or pid is None or code:
        return code
    return attach(pid)


def run_replay(file: Path, ascii_only: bool, *, watched: bool) -> int:
    """Run the monitor, or the screen of a ``watched`` program, with a recording and return the exit code.

    Raises FileMissing, FileNotRead and RecordingError, and what ``load_settings`` does.
    """
    # Before the terminal, which nobody can blame for a missing file.
    input_file.opened(file).close()
    instead = "--json" if watched else "--trace OUT"
    known = load_settings(ascii_only, f"without one use: stallscope replay FILE {instead}")
    recording: Recording | WatchRecording
    source: ReplaySource | WatchReplaySource
    with Progress() as progress:
        reading = progress.shower(f"reading {file.name}")
        if watched:
            from stallprobes.watch.live.recording import WatchRecording
            from stallscope.tui.sources.watch_replay import WatchReplaySource

            source = WatchReplaySource(recording := WatchRecording(file, reading))
        else:
            from stallprobes.recording.recording import Recording
            from stallscope.tui.sources.replay import ReplaySource

            source = ReplaySource(recording := Recording(file, reading))
    code, _ = run_app(lambda: source, known, first="watch" if watched else "monitor")
    if recording.cut_off:
        diagnostics.print_message(f"{file} is damaged or truncated; everything before that place was shown")
        code = code or ExitCode.DAMAGED
    if source.problem is not None:
        diagnostics.print_message(source.problem)
        code = code or ExitCode.DAMAGED
    return code


def _report_recording(recorder: Recorder, code: int) -> int:
    """Print the outcome of the recording. Returns the exit code: ``code``, or the exit code for an unwritten file."""
    if recorder.problem is not None:
        diagnostics.print_message(recorder.problem)
        return code or ExitCode.USAGE
    if not recorder.written:
        diagnostics.print_message(f"nothing was measured, so {recorder.path} was not created")
        return code
    lost = f"; {recorder.dropped} observations were lost because the disk is slow" if recorder.dropped else ""
    if recorder.traces_dropped:
        lost += f"; {recorder.traces_dropped} traces were left out"
    diagnostics.print_message(f"recorded to {recorder.path}{lost}")
    return code


def load_settings(ascii_only: bool, instead: str = diagnostics.SCREENLESS) -> settings.Settings:
    """The settings of the screen.

    Raises SettingsError, and CommandError where the terminal cannot show it, with what works ``instead``, or where
    memory or file descriptors are short.
    """
    why = diagnostics.screen_obstacle(instead)
    if why is not None:
        raise CommandError(ExitCode.USAGE, why)
    limits.require_screen()
    known = settings.load()
    return replace(known, ascii=ascii_only or known.ascii or not speaks_utf8())


def _save_crash(traceback: str) -> Path | None:
    """The file with the traceback of a crash, in the user's state directory; None where it cannot be written."""
    return user_state.write("crash.txt", printable_lines(traceback))


def run_app(
    create_source: Callable[[], ScreenSource],
    known: settings.Settings,
    recorder: Recorder | None = None,
    first: str = "monitor",
    tour: DemoTour | None = None,
) -> tuple[int, int | None]:
    """Run the screen program, beginning with the screen ``first``.

    ``tour`` is the demo that it shows. Returns its exit code, and the process that it was left for, None for none.
    """
    with Progress() as progress:
        # The first start after an installation compiles the modules, and a slow disk reads them.
        progress.begin("loading the screen")
        from stallscope.tui.app import StallscopeApp

    app = StallscopeApp(create_source, known, recorder, first, tour)
    try:
        app.run()
    finally:
        app.close()
    if app.failure is not None:
        file = _save_crash(app.crash) if app.crash else None
        diagnostics.print_message(app.failure if file is None else f"{app.failure}; please report it with {file}")
    return app.return_code or 0, None if app.context is None else app.context.chosen_pid
