"""The arguments of the command line and their help: every `--help` begins with examples, because
most readers look for these.

Options that are settings have the settings' names; all other settings come from the environment or
the settings file.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from typing import Any, NoReturn

from reo import examples
from reo.version import VERSION


class ExamplesParser(argparse.ArgumentParser):
    """A parser whose help begins with examples."""

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
        """Examples, then usage and options."""
        return (
            f"{self.examples}\n{super().format_help()}" if self.examples else super().format_help()
        )


def build_parser() -> ExamplesParser:
    """All commands and their options."""
    top = ExamplesParser(
        prog="reo",
        description="Copies Kafka topics from one cluster to another exactly once.",
        examples=examples.ALL,
    )
    top.add_argument("--version", action="version", version=f"reo {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="check everything that can be known before a start; changes nothing",
        examples=examples.CHECK,
    )
    run = commands.add_parser(
        "run", help="run the service: both stages, or one of them", examples=examples.RUN
    )
    run.add_argument(
        "stage", nargs="?", choices=("replicator", "deduplicator"), help="only this stage"
    )
    run.add_argument(
        "--stop-at-end",
        action="store_const",
        const="true",
        help="copy the records that exist at the start, then end",
    )
    status = commands.add_parser(
        "status",
        help="offsets, lags and rates of every partition, from the clusters alone",
        examples=examples.STATUS,
    )
    status.add_argument("--watch", action="store_true", help="continue until it is interrupted")
    status.add_argument(
        "--every",
        type=_parse_seconds,
        default=2.0,
        metavar="SECONDS",
        help="with --watch: how often (default 2)",
    )
    lag = commands.add_parser("lag", help="how far the copy is behind", examples=examples.LAG)
    lag.add_argument(
        "--max-records",
        type=_parse_count,
        metavar="N",
        help="exit code 36 when more records wait, of all partitions together",
    )
    lag.add_argument(
        "--max-seconds",
        type=_parse_seconds,
        metavar="S",
        help="exit code 36 when a record waits longer",
    )
    verify = commands.add_parser(
        "verify",
        help="compare the destination with the source, record by record",
        examples=examples.VERIFY,
    )
    verify.add_argument(
        "--resume",
        metavar="FILE",
        help=(
            "continue the comparison that this file describes, if it exists, and write the progress"
            " to it"
        ),
    )
    verify.add_argument(
        "--wait",
        type=_parse_seconds,
        default=0,
        metavar="SECONDS",
        help="first wait until the copy has caught up, at most so long",
    )
    recover = commands.add_parser(
        "recover",
        help="find a lost frontier from the data; changes nothing without --apply",
        examples=examples.RECOVER,
    )
    recover.add_argument(
        "--apply", action="store_true", help="commit the frontiers; the service must be stopped"
    )
    topics = commands.add_parser(
        "topics",
        help=(
            "compare the topics' configurations with the source's; changes nothing without --apply"
        ),
        examples=examples.TOPICS,
    )
    topics.add_argument(
        "--apply",
        action="store_true",
        help="change the configurations, create missing topics and partitions",
    )
    inspect = commands.add_parser(
        "inspect",
        help="print records of the intermediate topics in readable form",
        examples=examples.INSPECT,
    )
    inspect.add_argument("--partition", type=_parse_count, metavar="N", help="only this partition")
    inspect.add_argument(
        "--from",
        type=_parse_count,
        metavar="OFFSET",
        dest="begin",
        help="begin at this offset of the intermediate topic (default: the last records)",
    )
    inspect.add_argument(
        "--count",
        type=_parse_count,
        default=10,
        metavar="N",
        help="how many records of each partition (default 10)",
    )
    config = commands.add_parser(
        "config",
        help="show or import settings",
        examples=examples.SHOW + examples.IMPORT.removeprefix("examples:\n"),
    ).add_subparsers(dest="what", required=True, metavar="WHAT")
    show = config.add_parser(
        "show",
        help="print every setting in effect, and where its value comes from; secrets are hidden",
        examples=examples.SHOW,
    )
    relay = config.add_parser(
        "import",
        help="print kaf-relay's configuration as a settings file of reo",
        examples=examples.IMPORT,
    )
    relay.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="its TOML files; several are merged in order, as kaf-relay does",
    )
    relay.add_argument(
        "--mode",
        choices=("single", "failover"),
        default="",
        help=(
            "what kaf-relay is started with: the first source alone, or all of them (default:"
            " failover where there are several)"
        ),
    )
    relay.add_argument("--with-secrets", action="store_true", help="print passwords too")
    translate, sync = _add_offsets(commands)
    acls = commands.add_parser(
        "acls",
        help="show the topics' ACLs on both clusters; copy them with --apply",
        examples=examples.ACLS,
    )
    acls.add_argument("--apply", action="store_true", help="create what the destination lacks")
    acls.add_argument(
        "--with-write",
        action="store_true",
        help="also ALLOWs of operations that change a topic: another writer breaks a running copy",
    )
    plan, cutover, back = _add_cutover(commands)
    for command in (
        check,
        status,
        lag,
        verify,
        recover,
        inspect,
        topics,
        show,
        translate,
        sync,
        plan,
        cutover,
        acls,
    ):
        command.add_argument(
            "--json", action="store_true", help="JSON instead of text, for programs"
        )
    for command in (
        check,
        run,
        status,
        lag,
        verify,
        recover,
        inspect,
        topics,
        show,
        translate,
        sync,
        plan,
        cutover,
        back,
        acls,
    ):
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
    setup = commands.add_parser(
        "setup",
        help="fetch the jars of stage one; once, after an installation",
        examples=examples.SETUP,
    )
    setup.add_argument(
        "--from",
        metavar="FOLDER",
        dest="folder",
        help="the jars are in this folder; nothing is fetched",
    )
    completion = commands.add_parser(
        "completion",
        help="print a shell's script that completes commands and options",
        examples=examples.COMPLETION,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    commands.add_parser(
        "executor",
        help=(
            "an executor of stage one, which Spark starts in its pods on Kubernetes; never started"
            " by hand"
        ),
        examples=examples.EXECUTOR,
    )
    return top


def _add_offsets(
    commands: argparse._SubParsersAction[ExamplesParser],
) -> tuple[ExamplesParser, ExamplesParser]:
    offsets = commands.add_parser(
        "offsets",
        help="move consumer groups from the source to the destination",
        examples=examples.OFFSETS + examples.SYNC.removeprefix("examples:\n"),
    ).add_subparsers(dest="offsets", required=True, metavar="COMMAND")
    translate = offsets.add_parser(
        "translate",
        help="at which destination offset the group continues; changes nothing without --apply",
        examples=examples.OFFSETS,
    )
    translate.add_argument(
        "--group", required=True, help="the consumer group; it has the same name on both clusters"
    )
    translate.add_argument(
        "--apply",
        action="store_true",
        help=(
            "commit the offsets at the destination; the group must have no members there, and is"
            " never moved back"
        ),
    )
    sync = offsets.add_parser(
        "sync",
        help="keep the offsets of groups translated and committed at the destination",
        examples=examples.SYNC,
    )
    sync.add_argument(
        "--groups",
        metavar="REGEX",
        type=_parse_pattern,
        help="the groups; the whole name has to match (default: offsets.sync_groups)",
    )
    sync.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_parse_seconds,
        help="again and again, after so many seconds, until it is interrupted",
    )
    return translate, sync


def _add_cutover(
    commands: argparse._SubParsersAction[ExamplesParser],
) -> tuple[ExamplesParser, ExamplesParser, ExamplesParser]:
    words = commands.add_parser(
        "cutover",
        help="move topics and their consumer groups to the destination",
        examples=examples.CUTOVER_PLAN + examples.CUTOVER_RUN.removeprefix("examples:\n"),
    ).add_subparsers(dest="what", required=True, metavar="WHAT")
    plan = words.add_parser(
        "plan",
        help="what it takes to move the topics now; changes nothing",
        examples=examples.CUTOVER_PLAN,
    )
    run = words.add_parser(
        "run",
        help="move the topics: wait until all is copied, verify, translate the groups' offsets",
        examples=examples.CUTOVER_RUN,
    )
    for command in (plan, run):
        command.add_argument(
            "--groups",
            metavar="REGEX",
            type=_parse_pattern,
            default=".*",
            help=(
                "the groups that move; the whole name has to match "
                "(default: all that read the topics)"
            ),
        )
        command.add_argument(
            "--quiet",
            metavar="SECONDS",
            type=_parse_seconds,
            default=10.0,
            help="producers have stopped when nothing was written for so long (default 10)",
        )
        command.add_argument(
            "--resume",
            metavar="FILE",
            help="as in reo verify: continue the comparison that this file describes",
        )
    run.add_argument(
        "--fence",
        action="store_true",
        help="deny everybody to write to the topics at the source, by an ACL",
    )
    run.add_argument("--dry-run", action="store_true", help="as cutover plan: change nothing")
    return (
        plan,
        run,
        words.add_parser("back", help="remove the fence", examples=examples.CUTOVER_BACK),
    )


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as reason:
        raise argparse.ArgumentTypeError(
            f"a regular expression is expected, not {text!r}: {reason}"
        ) from None
    return text


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more, is expected, not {text!r}")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"a number of seconds, 0 or more, is expected, not {text!r}"
        )
    return seconds
