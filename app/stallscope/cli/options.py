"""The options --sim, --sim-seed and --sim-set: what they mean together, checked before an engine is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stallscope.cli.diagnostics import Exit, Problem
from stallscope.cli.stdout import Output
from stallscope.report.text import TableColumn

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options

DEFAULT_PROFILE = "h200"
DEFAULT_SEED = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])


def profile_option(help_: str) -> Callable[[_Command], _Command]:
    """The option --sim alone, as ``sim``: None without it, the default profile where it has no value."""
    return click.option("--sim", is_flag=False, flag_value=DEFAULT_PROFILE, metavar="[PROFILE]", help=help_)


_OPTIONS = (
    profile_option(
        f"On a simulated GPU, by default {DEFAULT_PROFILE}; `stallscope list` names the profiles. A path of a .toml "
        "file is one too."
    ),
    click.option(
        "--sim-seed",
        type=click.IntRange(0, 2**63 - 1),
        metavar="N",
        help=f"Another seed, other samples.  [default: {DEFAULT_SEED}]",
    ),
    click.option(
        "--sim-set",
        multiple=True,
        metavar="KEY=VALUE",
        help="One figure of the profile otherwise, such as timeslice_us=4000; can be given repeatedly. "
        "`stallscope list --sim` shows them all.",
    ),
)


FULL = click.option(
    "--full",
    is_flag=True,
    help="Show every finding, the reasons of cells that were not measured, and the machine's fingerprint.",
)


def simulated(command: _Command) -> _Command:
    """Gives ``command`` the three options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def untangle(sim: str | None, names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """``--sim NAME`` where NAME is something to run and no profile: then it meant the default profile."""
    from stallprobes.engine.sim import profile
    from stallprobes.measurement import measure

    if sim is None or sim in profile.names() or sim.endswith(".toml"):
        return sim, tuple(names)
    try:
        measure.selection((sim,))
    except measure.UnknownName:
        return sim, tuple(names)
    return DEFAULT_PROFILE, (sim, *names)


def options(sim: str | None, seed: int | None, settings: Sequence[str]) -> Options:
    """The options of a session. Raises Problem (exit code 2) for a wrong profile or setting, or one without --sim."""
    from stallprobes.engine.backend import Options
    from stallprobes.engine.sim import profile

    if sim is None:
        for name, given in (("--sim-seed", seed is not None), ("--sim-set", bool(settings))):
            if given:
                raise Problem(Exit.USAGE, f"{name} is for the simulated GPU: say --sim too")
        return Options()

    try:
        chosen = dict(profile.parse_setting(setting) for setting in settings)
        profile.load(sim, chosen)
    except profile.ProfileError as error:
        raise Problem(Exit.USAGE, str(error)) from error
    return Options(profile=sim, seed=DEFAULT_SEED if seed is None else seed, sim_set=chosen)


def profiles() -> list[tuple[str, str]]:
    """Name and machine of every profile in the package."""
    from stallprobes.engine.sim import profile

    return [(name, profile.load(name).title) for name in profile.names()]


def show_profile(out: Output, sim: str) -> None:
    """A profile's machine, where its figures come from, and all of them. Raises Problem (exit code 2)."""
    from stallprobes.engine.sim import profile

    try:
        loaded, settings = profile.load(sim), profile.settable(sim)
    except profile.ProfileError as error:
        raise Problem(Exit.USAGE, str(error)) from error
    out.line(f"SIMULATED {loaded.title}, profile {loaded.name}", "strong")
    out.paragraph(f"Source: {loaded.source}")
    out.line()
    rows = [(setting.key, setting.value, setting.what) for setting in settings]
    out.table((TableColumn("setting"), TableColumn("value", right=True), TableColumn("what it is")), rows)
    out.flush()
