"""The command ``demo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallprobes.errors import NoGpu, UnknownName
from stallscope.cli import completers, gpu_choice, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.options import SimulationOptions
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from stallprobes.model import Pattern

# Default time (s) of a step of the demo.
SECONDS = 8.0
# Advice where the terminal cannot show a screen.
_WITHOUT_SCREEN = "stdout may be a file (stallscope demo > FILE); without a terminal use: stallscope run all"


@click.command("demo", cls=MeasuringCommand)
@click.option(
    "--pattern",
    "names",
    multiple=True,
    shell_complete=completers.patterns,
    metavar="NAME",
    help="Show only this pattern; repeatable, in this order.",
)
@options.seconds(SECONDS, "Time per step, from when its probes run.")
@click.option("--loop", is_flag=True, help="Begin again after the finale, until you quit.")
@options.gpu()
@options.record
@options.allow_shared
@options.together
@options.simulation
@options.ascii_only
def command(
    names: tuple[str, ...],
    seconds: float,
    loop: bool,
    gpu: str | None,
    record: Path | None,
    allow_shared: bool,
    together: bool,
    simulation: SimulationOptions,
    ascii_only: bool,
) -> None:
    """Show all patterns on the screen, one after the other: quiet, the stall, the remedy. It needs no key.

    A caption says what there is to see, and why it matters. Keys: right and left for the next and the previous step, p
    to pause, q to quit. Patterns that this machine does not support are skipped. At the end each stall is a bar beside
    its quiet latency and its remedy; a table of what was found here and what the reporters found is written to
    stdout.

    Without a usable GPU, the demo uses a simulated GPU and says so.

    \b
    Examples:
      stallscope demo
      stallscope demo --sim --pattern secondary-context-d2d --seconds 5
      stallscope demo --loop
    """
    from stallscope.cli import screen
    from stallscope.report import demo_text
    from stallscope.tui.demo.tour import DemoTour

    tour = DemoTour(_patterns(names), seconds, loop)
    session = simulation.session_options(gpu, together=together)
    # Before the question about other processes.
    screen.load_settings(ascii_only, _WITHOUT_SCREEN)
    if record is not None:
        output_files.require_new_file("--record", record)
    if simulation.profile is None and not allow_shared:
        allow_shared = _confirm_shared(gpu, max(step.variant.needs.gpus for step in tour.steps))
    code = screen.run_live(session, allow_shared, record, ascii_only, tour)
    with Output() as out:
        demo_text.write_demo(out, tour.machine, tour.outcomes.values())
    if tour.problem and not code:
        raise CommandError(ExitCode.FAILED, tour.problem)
    diagnostics.exit_process(code)


def _patterns(names: Sequence[str]) -> list[Pattern]:
    """The patterns called ``names``, by default all. Raises UnknownName."""
    from stallprobes.patterns import patterns

    by_name = patterns()
    for name in names:
        if name not in by_name:
            from stallprobes.patterns.naming import unknown_name_message

            raise UnknownName(unknown_name_message("pattern", name, by_name))
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def _confirm_shared(gpu: str | None, count: int) -> bool:
    """Ask before other processes on up to ``count`` GPUs are disturbed; returns whether the user agreed to that.

    Without other processes it asks nothing and returns False. Where no GPU is asked for and there is none, the demo
    uses the simulated one. Raises what ``choose_gpus`` does.
    """
    from stallprobes.machine import gpus

    try:
        with Progress() as progress:
            chosen, _ = gpu_choice.choose_gpus(gpu, count, allow_shared=False, progress=progress)
    except NoGpu:
        if gpu is not None:
            raise
        return False
    return any(gpus.others(used) for used in chosen)
