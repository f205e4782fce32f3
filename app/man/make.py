"""Writes the manual page stallscope.1 from the help of the commands: python app/man/make.py [FILE]"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "probes")]

import click  # noqa: E402

from stallscope.cli.main import SECTIONS, cli  # noqa: E402

PAGE = HERE / "stallscope.1"


def page() -> str:
    """The text of the page, for man(7)."""
    top = click.Context(cli, info_name="stallscope", **cli.context_settings)
    lines = [
        '.TH STALLSCOPE 1 "" "stallscope" "User Commands"',
        ".SH NAME",
        r"stallscope \- an oscilloscope for CUDA concurrency stalls, in the terminal",
        ".SH SYNOPSIS",
        _plain(cli.get_usage(top).removeprefix("Usage: ")),
        ".SH DESCRIPTION",
        *_described(cli, top),
        ".SH COMMANDS",
    ]
    for section, commands in SECTIONS.items():
        lines += [f".SS {section}"]
        for name in commands:
            command = cli.get_command(top, name)
            assert command is not None
            context = click.Context(command, info_name=name, parent=top)
            usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
            lines += [".PP", rf"\fB{_plain(usage)}\fR", *_described(command, context)]
    return "\n".join(lines) + "\n"


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of a command, as it is laid out, and its options."""
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        laid_out = paragraph.startswith("\b\n")
        yield ".PP"
        yield from (".nf",) if laid_out else ()
        yield from map(_plain, paragraph.removeprefix("\b\n").splitlines())
        yield from (".fi",) if laid_out else ()
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", rf"\fB{_plain(record[0])}\fR", _plain(" ".join(record[1].split())))


def _plain(text: str) -> str:
    """Text that no request or escape of man(7) is in."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    (Path(sys.argv[1]) if sys.argv[1:] else PAGE).write_text(page(), encoding="utf-8")
