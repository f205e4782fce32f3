"""Parser of a Containerfile and rules for one, as a linter has them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

INSTRUCTIONS = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD"),
        *("RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)
_HOST = re.compile(r"\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|dev|io|net|org)\b|://")


@dataclass(frozen=True)
class Instruction:
    """An instruction and its arguments, with continued lines joined."""

    name: str
    arguments: str

    def words(self) -> list[str]:
        """The arguments of the form with brackets, or split as a shell does."""
        if self.arguments.startswith("["):
            return [str(word) for word in json.loads(self.arguments)]
        return shlex.split(self.arguments)


def parse(text: str) -> list[Instruction]:
    """The instructions of a Containerfile. Raises ValueError for a line that begins none."""
    found = []
    joined = ""
    for line in text.splitlines():
        # A comment ends no continued line.
        if line.lstrip().startswith("#") or not line.strip():
            continue
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        name, _, arguments = joined.partition(" ")
        if name not in INSTRUCTIONS or not arguments.strip():
            raise ValueError(f"no instruction: {joined}")
        found.append(Instruction(name, arguments.strip()))
        joined = ""
    if joined:
        raise ValueError(f"the last line is continued: {joined}")
    return found


def environment(instructions: list[Instruction]) -> dict[str, str]:
    """The variables that ENV sets."""
    pairs = (word.partition("=") for one in instructions if one.name == "ENV" for word in one.words())
    return {name: value for name, _, value in pairs}


def problems(text: str) -> Iterator[str]:
    """A sentence for each rule that the Containerfile breaks."""
    instructions = parse(text)
    names = [one.name for one in instructions]
    bases = [one.arguments for one in instructions if one.name == "FROM"]
    users = [one.arguments for one in instructions if one.name == "USER"]
    if names[0] != "FROM" or len(bases) != 1:
        yield "it does not begin with its only FROM"
    for base in bases:
        if not re.fullmatch(r"[a-z0-9-]+:[a-z0-9.-]+", base) or base.endswith(":latest"):
            yield f"the base {base} is no plain name with a version"
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        yield "the last USER is not a user and a group by number, and not root"
    for single in ("CMD", "ENTRYPOINT"):
        if names.count(single) != 1:
            yield f"it needs one {single}"
    for one in instructions:
        if one.name in ("CMD", "ENTRYPOINT") and not one.arguments.startswith("["):
            yield f"{one.name} runs a shell, which gets the signals"
        if one.name == "ADD":
            yield "ADD unpacks and downloads: use COPY"
        if one.name == "WORKDIR" and not one.arguments.startswith("/"):
            yield f"the WORKDIR {one.arguments} is relative"
        if one.name == "RUN" and re.search(r"\bsudo\b|\bchmod\s+(-R\s+)?777\b", one.arguments):
            yield f"RUN gives away rights: {one.arguments}"
        if one.name == "RUN" and "pip install" in one.arguments and "--no-cache-dir" not in one.arguments:
            yield "pip leaves its cache in the image"
        if one.name == "RUN" and re.search(r"\bcd\b|\|", one.arguments):
            yield f"RUN changes the folder, or hides a failure in a pipe: {one.arguments}"
        if one.name != "FROM" and _HOST.search(one.arguments):
            yield f"{one.name} names a host: {one.arguments}"
    if _HOST.search("\n".join(line for line in text.splitlines() if line.startswith("#"))):
        yield "a comment names a host"
