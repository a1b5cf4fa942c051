"""The commands of the command line: for each its words, the function that runs it, and its options.

Every `--help` has examples before the options (`reo.help_examples`), because most readers look for
these. Options that are settings have the settings' names; all other settings come from the
environment or the settings file.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reo.examples_parser import ExamplesParser
from reo.help_examples import EXAMPLES
from reo.version import VERSION

ALL_GROUPS = ".*"
"""The default of `reo cutover --groups`."""
PORT_MAX = 65_535
INTERVAL_MIN_S = 0.1


def parse_pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as reason:
        raise argparse.ArgumentTypeError(
            f"a regular expression is expected, not {text!r}: {reason}"
        ) from None
    return text


def parse_name(text: str) -> str:
    """The name of what is at a cluster, which is UTF-8 there."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"UTF-8 is expected, not {text!r}") from None
    return text


def parse_count(text: str) -> int:
    """A whole number, 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more, is expected, not {text!r}")
    return int(text)


def parse_number(text: str) -> int:
    """A whole number, 1 or more."""
    if not parse_count(text):
        raise argparse.ArgumentTypeError(f"a whole number, 1 or more, is expected, not {text!r}")
    return int(text)


def parse_port(text: str) -> int:
    """A TCP port, 0 for any that is free."""
    if parse_count(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"a port is expected, at most {PORT_MAX}, not {text!r}")
    return int(text)


def parse_seconds(text: str, minimum: float = 0) -> float:
    """A number of seconds, so many or more."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not minimum <= seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"a number of seconds, {minimum:g} or more, is expected, not {text!r}"
        )
    return seconds


def parse_interval(text: str) -> float:
    """A number of seconds between two rounds of a command that repeats itself: not 0, with which it
    would ask the clusters without a pause.
    """
    return parse_seconds(text, INTERVAL_MIN_S)


Option = tuple[str, Mapping[str, Any]]
"""One argument of a parser, and what argparse takes for it. What the parser calls it (`dest`) is a
parameter of the function that runs the command.
"""


def build_option(name: str, text: str, **arguments: Any) -> Option:
    """With its help text."""
    return name, {"help": text, **arguments}


def build_flag(name: str, text: str, **arguments: Any) -> Option:
    """An option without a value."""
    return build_option(name, text, action="store_true", **arguments)


def build_count(
    name: str,
    text: str,
    metavar: str = "N",
    parse: Callable[[str], int] = parse_count,
    **arguments: Any,
) -> Option:
    """An option whose value is a whole number."""
    return build_option(name, text, type=parse, metavar=metavar, **arguments)


def build_duration(
    name: str, text: str, dest: str, parse: Callable[[str], float] = parse_seconds, **arguments: Any
) -> Option:
    """An option whose value is a time."""
    return build_option(name, text, dest=dest, type=parse, metavar="SECONDS", **arguments)


MODES = ("single", "failover")
SETTINGS_OPTIONS = (
    build_option(
        "--settings",
        "settings file (TOML, YAML, JSON or INI); may be repeated: later files win, name by name",
        action="append",
        metavar="FILE",
    ),
    build_option(
        "--mode", "source.mode: one source cluster, or any of several identical ones", choices=MODES
    ),
    build_option(
        "--topic",
        "what to copy: a topic, or a pattern that begins with ^; may be repeated, and replaces the"
        " topics of the settings",
        action="append",
        metavar="TOPIC[=COPY[:MAPPING]]",
    ),
)
"""Those of every command that has settings: they are settings themselves."""
JSON_OPTION = build_flag("--json", "JSON instead of text, for programs", dest="as_json")
RESUME_OPTION = build_option(
    "--resume",
    "continue the comparison that this file describes, if it exists, and note the progress in it",
    metavar="FILE",
)
CUTOVER_OPTIONS = (
    build_option(
        "--groups",
        "the groups that move; the whole name has to match (default: all that read the topics)",
        metavar="REGEX",
        type=parse_pattern,
        default=ALL_GROUPS,
    ),
    build_duration(
        "--quiet",
        "producers have stopped when nothing was written for so long (default 10)",
        "quiet_s",
        default=10.0,
    ),
    RESUME_OPTION,
)


TOPICS = (build_option("names", "source topics", nargs="+", metavar="TOPIC"),)


class Command(NamedTuple):
    """One command. `function` is module:name; the module is imported when the command runs, because
    some are slow to import. It gets the settings, if the command has any, and its own options.
    """

    words: str
    function: str
    text: str
    options: tuple[Option, ...] = ()
    has_json: bool = True
    """Whether it prints a result, as text or as JSON."""
    has_settings: bool = True

    def list_options(self) -> list[Option]:
        """Its own, and then those that others have too."""
        return [
            *self.options,
            *([JSON_OPTION] if self.has_json else []),
            *(SETTINGS_OPTIONS if self.has_settings else ()),
        ]


COMMANDS = (
    Command("check", "reo.check:run_command", "check everything that can be known before a start"),
    Command(
        "run",
        "reo.cli:run_service",
        "run the service: both stages, or one of them",
        (
            build_option(
                "stage", "only this stage", nargs="?", choices=("replicator", "deduplicator")
            ),
            build_option(
                "--stop-at-end",
                "copy the records that exist at the start, then end",
                action="store_const",
                const="true",
            ),
        ),
        has_json=False,
    ),
    Command(
        "status",
        "reo.progress.status:run_command",
        "offsets, lags and rates of every partition, from the clusters alone",
        (
            build_flag("--watch", "continue until it is interrupted"),
            build_duration(
                "--every",
                "with --watch: how often (default 2)",
                "every_s",
                parse=parse_interval,
                default=2.0,
            ),
        ),
    ),
    Command(
        "lag",
        "reo.progress.lag:run_command",
        "how far the copy is behind",
        (
            build_count("--max-records", "exit code 36 when more wait, of all partitions together"),
            build_duration(
                "--max-seconds", "exit code 36 when a record waits longer", "max_seconds"
            ),
        ),
    ),
    Command(
        "heartbeat",
        "reo.progress.heartbeat:run_command",
        "write a record each second to a topic of its own, and say how old its newest copy is",
        (
            build_option(
                "heartbeats",
                "the source topic; a rule of the service copies it",
                metavar="TOPIC",
            ),
            build_duration(
                "--every",
                "how often it writes (default 1)",
                "every_s",
                parse=parse_interval,
                default=1.0,
            ),
            build_count("--port", "serve the age as a metric on this port", parse=parse_port),
        ),
    ),
    Command(
        "pause",
        "reo.pause:pause",
        "read no more of topics, while the others go on",
        TOPICS,
        has_json=False,
    ),
    Command(
        "resume",
        "reo.pause:resume",
        "go on with topics that are paused, or that an error has stopped",
        TOPICS,
        has_json=False,
    ),
    Command(
        "verify",
        "reo.verify:run_command",
        "compare the destination with the source, record by record",
        (
            RESUME_OPTION,
            build_duration(
                "--wait",
                "first wait until the copy has caught up, at most so long",
                "wait_s",
                default=0,
            ),
        ),
    ),
    Command(
        "recover",
        "reo.recover:run_command",
        "find a lost frontier from the data; changes nothing without --apply",
        (build_flag("--apply", "commit the frontiers; the service must be stopped"),),
    ),
    Command(
        "topics",
        "reo.migration.config_drift:run_command",
        "compare the topics' configurations with the source's; changes nothing without --apply",
        (build_flag("--apply", "change the configurations, create missing topics and partitions"),),
    ),
    Command(
        "inspect",
        "reo.progress.inspect:run_command",
        "print the envelopes on the intermediate topics in readable form",
        (
            build_count("--partition", "only this partition"),
            build_count(
                "--from",
                "begin at this offset (default: the last envelopes)",
                "OFFSET",
                dest="begin",
            ),
            build_count(
                "--count",
                "how many envelopes of each partition (default 10)",
                parse=parse_number,
                default=10,
            ),
            build_flag("--records", "print the source records in them, too", dest="with_records"),
        ),
    ),
    Command(
        "config init",
        "reo.config:print_example",
        "print a settings file to begin with: every setting, with its meaning and default",
        has_json=False,
        has_settings=False,
    ),
    Command(
        "config show",
        "reo.config:show_settings",
        "print every setting in effect, and where its value comes from; secrets are hidden",
    ),
    Command(
        "config import",
        "reo.importers.config_import:import_files",
        "print kaf-relay's, kafka-reo's or MirrorMaker 2's configuration as a settings file",
        (
            build_option(
                "files",
                "kaf-relay's TOML, kafka-reo's YAML, mm2.properties, or a connector's JSON; a later"
                " file wins",
                nargs="+",
                metavar="FILE",
            ),
            build_option(
                "--flow",
                "MirrorMaker 2: which flow (default: the one that is enabled)",
                metavar="A->B",
                default="",
            ),
            build_option(
                "--mode",
                "kaf-relay's --mode (default: failover where there are several sources)",
                choices=MODES,
                default="",
            ),
            build_flag("--with-secrets", "print passwords too"),
        ),
        has_json=False,
        has_settings=False,
    ),
    Command(
        "offsets translate",
        "reo.migration.group_translator:run_command",
        "at which destination offset the group continues; changes nothing without --apply",
        (
            build_option(
                "--group",
                "the consumer group; the same name on both",
                type=parse_name,
                required=True,
            ),
            build_flag("--apply", "commit the offsets at the destination; no member may be there"),
        ),
    ),
    Command(
        "offsets sync",
        "reo.migration.offsets_sync:run_command",
        "keep the offsets of groups translated and committed at the destination",
        (
            build_option(
                "--groups",
                "the groups; the whole name has to match (default: offsets.sync_groups)",
                metavar="REGEX",
                type=parse_pattern,
            ),
            build_duration(
                "--interval",
                "again after so many seconds, until Ctrl-C",
                "interval_s",
                parse=parse_interval,
            ),
        ),
    ),
    Command(
        "acls",
        "reo.migration.acls:run_command",
        "show the topics' ACLs on both clusters; copy them with --apply",
        (
            build_flag("--apply", "create what the destination lacks"),
            build_flag("--with-write", "also ALLOWs of operations that change a topic"),
        ),
    ),
    Command(
        "cutover plan",
        "reo.migration.cutover_plan:run_command",
        "what it takes to move the topics now; changes nothing",
        CUTOVER_OPTIONS,
    ),
    Command(
        "cutover run",
        "reo.migration.cutover:run_command",
        "move the topics: wait until all is copied, verify, translate the groups' offsets",
        (
            *CUTOVER_OPTIONS,
            build_flag("--deny-writes", "deny everybody to write at the source, by an ACL"),
            build_flag("--dry-run", "as cutover plan: change nothing"),
        ),
    ),
    Command(
        "cutover back",
        "reo.migration.cutover_back:run_command",
        "remove the DENY; undo the move, or set up the copy in the other direction",
        has_json=False,
    ),
    Command(
        "setup",
        "reo.setup_spark:run_command",
        "fetch the jars of stage one; once, after an installation",
        (
            build_option(
                "--from", "take the jars from this folder", metavar="FOLDER", dest="source"
            ),
        ),
        has_json=False,
        has_settings=False,
    ),
    Command(
        "completion",
        "reo.cli:print_completion",
        "print a shell's script that completes commands and options",
        (build_option("shell", "which shell", choices=("bash", "zsh", "fish")),),
        has_json=False,
        has_settings=False,
    ),
    Command(
        "executor",
        "replicator.spark.executor_command:run",
        "an executor of stage one, which Spark starts in its pods on Kubernetes",
        has_json=False,
        has_settings=False,
    ),
)
"""In the order in which the help lists them."""
FAMILIES = {
    "config": "write, show or import settings",
    "offsets": "move consumer groups from the source to the destination",
    "cutover": "move topics and their consumer groups to the destination",
}
"""The first words that several commands have in common."""


def build_parser() -> ExamplesParser:
    """All commands; what is parsed has the command as `command`."""
    top = ExamplesParser(
        prog="reo",
        description="Copies Kafka topics from one cluster to another exactly once.",
        examples=EXAMPLES[""],
    )
    top.add_argument("--version", action="version", version=f"reo {VERSION}")
    levels = {"": top.add_subparsers(required=True, metavar="COMMAND")}
    for command in COMMANDS:
        first, _, word = command.words.rpartition(" ")
        if first not in levels:
            examples = [text for words, text in EXAMPLES.items() if words.startswith(f"{first} ")]
            family = levels[""].add_parser(first, help=FAMILIES[first], examples="".join(examples))
            levels[first] = family.add_subparsers(required=True, metavar="COMMAND")
        parser = levels[first].add_parser(word, help=command.text, examples=EXAMPLES[command.words])
        for name, arguments in command.list_options():
            parser.add_argument(name, **arguments)
        parser.set_defaults(command=command)
    return top
