"""What the parsers of all commands share: help with examples before the options, suggestions for
mistyped words, the options of every command that has settings, and the types of arguments.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias


class ExamplesParser(argparse.ArgumentParser):
    """A parser whose help has examples before the options."""

    def __init__(self, *, examples: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.examples = examples

    def error(self, message: str) -> NoReturn:
        """As argparse, with a suggestion for a mistyped word. Before Python 3.12.8 the choices are
        in quotes.
        """
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        known = (
            re.findall(r"[\w-]+", choice[2])
            if choice
            else sorted(self._list_options())
            if option
            else []
        )
        suggestions = (
            difflib.get_close_matches((choice or option or [""])[1], known, 1) if known else []
        )
        super().error(message + (f". Did you mean {suggestions[0]!r}?" if suggestions else ""))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse, which would take the word after a mistyped option for a stage or a command,
        and complain of that word.
        """
        words = list(sys.argv[1:] if args is None else args)
        if not any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            known = self._list_options()
            for word in words[: words.index("--")] if "--" in words else words:
                option = word.partition("=")[0]
                if option.startswith("--") and not any(name.startswith(option) for name in known):
                    self.error(f"unrecognized arguments: {option}")
        return super().parse_known_args(words, namespace)

    def _list_options(self) -> set[str]:
        """The options of this command and of those below it."""
        options = set(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                options = options.union(
                    *(parser._list_options() for parser in action.choices.values())
                )
        return options

    def format_help(self) -> str:
        """Usage, examples, and then all options."""
        usage, blank_line, options = super().format_help().partition("\n\n")
        return "".join((usage, blank_line, f"{self.examples}\n" if self.examples else "", options))


Commands: TypeAlias = "argparse._SubParsersAction[ExamplesParser]"
"""Where commands are added."""


def add_result_options(command: ExamplesParser) -> None:
    """The options of a command that prints a result: its form, and which settings it has."""
    command.add_argument("--json", action="store_true", help="JSON instead of text, for programs")
    add_settings_options(command)


def add_settings_options(command: ExamplesParser) -> None:
    """The options of a command that has settings."""
    command.add_argument(
        "--settings",
        action="append",
        metavar="FILE",
        help=(
            "settings file (TOML, YAML, JSON or INI); may be repeated: later files win, name by"
            " name"
        ),
    )
    command.add_argument(
        "--mode",
        choices=("single", "failover"),
        help="source.mode: one source cluster, or any of several identical ones",
    )
    command.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[=COPY[:MAPPING]]",
        help=(
            "what to copy: a topic, or a pattern that begins with ^; may be repeated, and"
            " replaces the topics of the settings"
        ),
    )


def parse_pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as reason:
        raise argparse.ArgumentTypeError(
            f"a regular expression is expected, not {text!r}: {reason}"
        ) from None
    return text


def parse_count(text: str) -> int:
    """A whole number, 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more, is expected, not {text!r}")
    return int(text)


def parse_seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"a number of seconds, 0 or more, is expected, not {text!r}"
        )
    return seconds
