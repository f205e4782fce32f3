"""The command ``fleet``: job files that run the check on many machines and merge the results, an image for them, and
what Prometheus and Grafana need to watch it.

The files are printed as they are in this folder. stallscope itself starts nothing on other machines.
"""

from __future__ import annotations

from pathlib import Path

import click

from stallprobes.errors import UnknownName
from stallscope.cli import completers
from stallscope.cli.command import CliCommand
from stallscope.cli.process.stdout import Output

# Template file that `stallscope fleet KIND` prints, by KIND.
FILES = {
    "slurm": "slurm.sh",
    "kubernetes": "kubernetes.yaml",
    "ansible": "ansible.yml",
    "container": "Containerfile",
    "alerts": "alerts.yml",
    "grafana": "grafana.json",
}


@click.command("fleet", cls=CliCommand)
@click.argument(
    "kind", shell_complete=lambda _context, _parameter, begun: completers.items(begun, dict.fromkeys(FILES, ""))
)
def command(kind: str) -> None:
    """Print a file of KIND: a job that runs the check on many machines and merges the results (slurm, kubernetes,
    ansible), the image for it (container), alert rules for Prometheus (alerts), or a dashboard for Grafana (grafana),
    both also of watched programs. Its first lines explain its use.

    \b
    Examples:
      stallscope fleet slurm > stallscope.sbatch
      stallscope fleet kubernetes > stallscope.yaml
      stallscope fleet ansible > stallscope.yml
      stallscope fleet container > Containerfile
      stallscope fleet alerts > stallscope.rules.yml
      stallscope fleet grafana > stallscope.json
    """
    if kind not in FILES:
        from stallprobes.patterns.naming import unknown_name_message

        raise UnknownName(unknown_name_message("file for a fleet", kind, FILES))
    with Output() as out:
        out.lines(text(kind))


def text(kind: str) -> str:
    """Text of the file for ``kind``, a key of FILES. Raises KeyError for another one."""
    return Path(__file__).with_name(FILES[kind]).read_text(encoding="utf-8")
