"""The command ``fleet``: ready files that run the check on many machines and merge what they found.

They lie beside this module as they are printed. stallscope itself starts nothing on other machines.
"""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli.stdout import Output

FILES = {"slurm": "slurm.sh", "kubernetes": "kubernetes.yaml", "ansible": "ansible.yml"}


@click.command(short_help="Ready files for Slurm, Kubernetes and Ansible.")
@click.argument("kind", type=click.Choice(tuple(FILES)))
def fleet(kind: str) -> None:
    """Print a ready file that runs the check on many machines and merges what they found; it begins with how to use it.

    \b
    stallscope fleet slurm > stallscope.sbatch
    stallscope fleet kubernetes > stallscope.yaml
    stallscope fleet ansible > stallscope.yml
    """
    out = Output()
    for line in text(kind).splitlines():
        out.line(line)
    out.flush()


def text(kind: str) -> str:
    """The file for ``kind``, one of FILES. Raises KeyError for any other."""
    return Path(__file__).with_name(FILES[kind]).read_text(encoding="utf-8")
