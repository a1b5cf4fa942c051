"""A parser of arguments whose help has examples before the options, and which suggests a word for a
mistyped one.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


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
        for found in filter(None, (choice, option)):
            known = re.findall(r"[\w-]+", choice[2]) if choice else sorted(self._list_options())
            for suggestion in difflib.get_close_matches(found[1], known, 1):
                message += f". Did you mean {suggestion!r}?"
        super().error(message)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse, which would take the word after a mistyped option, or after one that stands
        before the command, for a stage or a command, and complain of that word.
        """
        words = list(sys.argv[1:] if args is None else args)
        first = words[0].partition("=")[0] if words else ""
        if first in self._list_options() - set(self._option_string_actions):
            self.error(f"{first} stands before the command: give it after the command")
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
        examples = f"examples:\n{self.examples}\n" if self.examples else ""
        return f"{usage}{blank_line}{examples}{options}"
