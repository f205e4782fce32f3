"""The class of all commands: help on stdout, and errors of usage as one sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from stallscope.cli import options
from stallscope.cli.process import limits
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# Environment variable by which a shell asks for completions.
COMPLETION_VARIABLE = "_STALLSCOPE_COMPLETE"
# A command refuses these options if they are given more than once. Reason: the command would ignore all values but the
# last. The same rule applies to every option for a single file.
_GIVEN_ONCE = ("--gpu", "--pid")


class CliCommand(click.Command):
    """A command with help in the style of results, and usage errors with their context."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """As click's; a closed or full stdout raises CommandError."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's. Raises click.UsageError with a context, and with a sentence for arguments that are too many."""
        allowed, ctx.allow_extra_args = ctx.allow_extra_args, True
        try:
            self._require_given_once(ctx, args)
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        ctx.allow_extra_args = allowed
        if rest and not allowed and not ctx.resilient_parsing:
            raise click.UsageError(f'there is no place for the argument "{rest[0]}"', ctx)
        return rest

    def _require_given_once(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Raise click.UsageError where an option for one file, GPU or process has two: one of them would be ignored.

        Of other options the last value counts, as usual, so that a wrapper's can be overridden.
        """
        if ctx.resilient_parsing:
            return
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter, times in Counter(order).items():
            named = isinstance(parameter.type, click.Path) or parameter.opts[-1] in _GIVEN_ONCE
            if times > 1 and named and isinstance(parameter, click.Option) and not parameter.multiple:
                count = "twice" if times == 2 else f"{times} times"
                raise click.UsageError(f"{parameter.opts[-1]} is given {count}: give it once", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The options, also before the first letter of one."""
        return super().shell_complete(ctx, incomplete or "-")


class MeasuringCommand(CliCommand):
    """A command that measures, or reads what was measured."""

    def invoke(self, ctx: click.Context) -> Any:
        """As click's. Raises CommandError where too little memory is left."""
        limits.require_numpy()
        return super().invoke(ctx)


def print_and_exit(context: click.Context, text: str) -> None:
    """Write ``text`` and a line end to stdout, and end the command. Raises CommandError if that is not possible."""
    with Output() as out:
        out.write(text + "\n")
    context.exit()


def usage_sentence(error: click.ClickException) -> str:
    """The sentence for an error of click: what is wrong, and where to read more."""
    context = getattr(error, "ctx", None)
    path = "stallscope" if context is None else context.command_path
    parameters = [] if context is None else context.command.get_params(context)
    return f"{_problem(error, parameters)}; see: {path} --help"


def _problem(error: click.ClickException, parameters: Sequence[click.Parameter]) -> str:
    match error:
        case click.MissingParameter(param=click.Argument() as argument):
            return f"{_name(argument)} is missing{_taken_by_sim(error.ctx)}"
        case click.MissingParameter(param=click.Option() as option):
            return f"{_with_value(option)} is missing"
        case click.BadParameter(param=click.Parameter() as parameter, message=message):
            name = _name(parameter) if isinstance(parameter, click.Argument) else parameter.opts[-1]
            return f"{name}: {message.rstrip('.')}"
        case click.NoSuchOption(option_name=name):
            names = [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]
            return f"there is no option {name}{_proposal(name, names)}"
        case click.BadOptionUsage(option_name=name):
            meant = next((candidate for candidate in parameters if name in candidate.opts), None)
            if isinstance(meant, click.Option) and not meant.is_flag:
                return f"{name} needs a value: {_with_value(meant)}"
            return f"{name} takes no value"
    return error.format_message()


def _name(argument: click.Argument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _taken_by_sim(context: click.Context | None) -> str:
    """Hint that --sim took the missing argument for its profile."""
    value = None if context is None else context.params.get("sim")
    if value is None or options.is_profile(value):
        return ""
    return f'; --sim took "{value}" for its profile: write --sim={options.DEFAULT_PROFILE} "{value}"'


def _with_value(option: click.Option) -> str:
    return f"{option.opts[-1]} {option.metavar or option.type.name.upper()}"


def _proposal(name: str, names: Iterable[str]) -> str:
    from stallprobes.spelling import nearest

    near = nearest(name, names)
    return f" (did you mean {near}?)" if near else ""


def _print_help(context: click.Context, _option: click.Parameter, asked: Any) -> None:
    if asked and not context.resilient_parsing:
        print_and_exit(context, context.get_help())
