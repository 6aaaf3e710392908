"""The parser of one command. Its errors have one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from flanders.checks import InputError, did_you_mean
from flanders.cli.leaderboard import Command

Group: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What `add_subparsers` of argparse returns. Commands are added to it."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors have one line. If a word is misspelt, the error suggests the right word.

    If a command does not know an argument, the error names the help of this command.
    """

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description)
        self.commands: list[Parser] = []
        """The parsers of the commands that were added so far."""

    def added(self, group: Group, name: str, command: Command, text: str) -> Parser:
        """Add a command to a group of commands, and return its parser."""
        sub = group.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command, parser=sub)
        self.commands.append(sub)
        return sub

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse the arguments of the program. Raise an error if the command does not know some of them."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            parser: Parser = options.parser
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise an `InputError`, as for any other wrong input."""
        guess = ""
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            guess = did_you_mean(choice[1], [word.strip(" '") for word in choice[2].split(",")])
        elif option := re.search(r"unrecognized arguments: --([\w-]+)", message):
            # Without the dashes, since two short options with the same dashes would seem to be alike.
            guess = did_you_mean(option[1], re.findall(r"--([\w-]+)", self.format_help())).replace(" '", " '--")
        raise InputError(f"{message}.{guess} See `{self.prog} --help`.")
