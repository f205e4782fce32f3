"""Shell completion: the script for bash, zsh and fish, and the answers to its questions.

A shell asks with the environment variable ``_STALLSCOPE_COMPLETE``: ``bash_source`` prints the script,
``bash_complete`` the words that complete the command line which the script passes. The engine is click's; the scripts
are ours, because click's split words at ``@`` in bash, and at commas in fish.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from stallscope.cli.completion.completers import FILE_TYPE
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.stdout import Output

PROGRAM = "stallscope"

# $2 is what readline replaces: the word from its last separator (such as = or @) on.
_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        if [[ $kind == plain ]]; then
            COMPREPLY+=("$value")
            if [[ $value == *= ]]; then compopt -o nospace; fi
        elif [[ $kind == file && ${#COMPREPLY[@]} -eq 0 ]]; then
            compopt -o default
        fi
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described response
    local kind key title files
    response=("${(@f)$(COMP_WORDS="${words[1,CURRENT]}" COMP_CWORD=$((CURRENT-1)) \\
%(complete_var)s=zsh_complete "${words[1]}" 2>/dev/null)}")
    for kind key title in ${response}; do
        if [[ $kind == file ]]; then
            files=1
        elif [[ $title == _ ]]; then
            plain+=("$key")
        else
            described+=("$key:$title")
        fi
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
    if [[ -n $files ]]; then
        compset -P '--*='
        _files
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s
    set -l token (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $token)
    set -l response (COMP_WORDS=(commandline -cp) COMP_CWORD=$token \\
%(complete_var)s=fish_complete %(prog_name)s 2>/dev/null)
    for line in $response
        set -l fields (string split -m 1 , -- $line)
        if test $fields[1] = file
            for path in (__fish_complete_path "$fields[2]")
                echo "$option$path"
            end
        else
            echo $fields[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class BashAnswers(BashComplete):
    """Completion for bash: answers replace only the part of a word after its last separator."""

    source_template = _BASH

    def source(self) -> str:
        """The script. click's first runs a bash for its version, which need not be the one that reads the script."""
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the word at it."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = words.pop() if len(words) > 1 and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """Whole words, less what is before the part that bash replaces."""
        word = os.environ.get("COMP_WORD", "")
        kept = len(incomplete) - len(word) if incomplete.endswith(word) else 0
        found = _whole_words(super().get_completions(args, incomplete), incomplete)
        return [CompletionItem(item.value[kept:], item.type) for item in found]


class _WholeWords(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """Whole words with their titles."""
        return _whole_words(super().get_completions(args, incomplete), incomplete)


class ZshAnswers(_WholeWords, ZshComplete):
    """Completion for zsh, with titles."""

    source_template = _ZSH


class FishAnswers(_WholeWords, FishComplete):
    """Completion for fish, with titles."""

    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashAnswers, "fish": FishAnswers, "zsh": ZshAnswers}


def answer(command: click.Command, variable: str, instruction: str) -> ExitCode:
    """Write what ``instruction``, the value of ``variable``, asks for: a script, or the words for a command line.

    Raises CommandError (exit code 2) for another value. A command line that cannot be completed has no words.
    """
    shell, _, what = instruction.partition("_")
    if shell not in _SHELLS or what not in ("source", "complete"):
        values = ", ".join(f"{name}_source" for name in _SHELLS)
        raise CommandError(ExitCode.USAGE, f"{variable}={instruction} asks for no completion script; use {values}")
    answers = _SHELLS[shell](command, {}, PROGRAM, variable)
    with Output() as out:
        try:
            out.write(answers.source() if what == "source" else answers.complete() + "\n")
        except (click.ClickException, CommandError, KeyError, IndexError, ValueError):
            return ExitCode.FAILED
    return ExitCode.SUCCESS


def _whole_words(items: list[CompletionItem[Any]], incomplete: str) -> list[CompletionItem[Any]]:
    """``items`` as whole words: click leaves ``--option=`` out of the values of an option."""
    option, equals, _ = incomplete.partition("=")
    if not equals or not option.startswith("-"):
        return items
    return [
        item if item.type == FILE_TYPE else CompletionItem(f"{option}={item.value}", item.type, item.help)
        for item in items
        if not item.argument
    ]
