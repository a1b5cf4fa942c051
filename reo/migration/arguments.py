"""The arguments of the commands that move what belongs to a topic: `reo topics`, `reo offsets`,
`reo acls` and `reo cutover`.
"""

from __future__ import annotations

from reo import help_examples
from reo.parser_parts import (
    Commands,
    ExamplesParser,
    add_result_options,
    add_settings_options,
    parse_pattern,
    parse_seconds,
)

ALL_GROUPS = ".*"
"""The default of `reo cutover --groups`."""


def add_topics(commands: Commands) -> None:
    """`reo topics`."""
    topics = commands.add_parser(
        "topics",
        help=(
            "compare the topics' configurations with the source's; changes nothing without --apply"
        ),
        examples=help_examples.TOPICS,
    )
    topics.add_argument(
        "--apply",
        action="store_true",
        help="change the configurations, create missing topics and partitions",
    )
    add_result_options(topics)


def add_offsets(commands: Commands) -> None:
    """`reo offsets translate` and `reo offsets sync`."""
    offsets = commands.add_parser(
        "offsets",
        help="move consumer groups from the source to the destination",
        examples=help_examples.OFFSETS + help_examples.SYNC.removeprefix("examples:\n"),
    ).add_subparsers(dest="offsets", required=True, metavar="COMMAND")
    translate = offsets.add_parser(
        "translate",
        help="at which destination offset the group continues; changes nothing without --apply",
        examples=help_examples.OFFSETS,
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
        examples=help_examples.SYNC,
    )
    sync.add_argument(
        "--groups",
        metavar="REGEX",
        type=parse_pattern,
        help="the groups; the whole name has to match (default: offsets.sync_groups)",
    )
    sync.add_argument(
        "--interval",
        metavar="SECONDS",
        type=parse_seconds,
        help="again and again, after so many seconds, until it is interrupted",
    )
    add_result_options(translate)
    add_result_options(sync)


def add_acls(commands: Commands) -> None:
    """`reo acls`."""
    acls = commands.add_parser(
        "acls",
        help="show the topics' ACLs on both clusters; copy them with --apply",
        examples=help_examples.ACLS,
    )
    acls.add_argument("--apply", action="store_true", help="create what the destination lacks")
    acls.add_argument(
        "--with-write",
        action="store_true",
        help="also ALLOWs of operations that change a topic: another writer breaks a running copy",
    )
    add_result_options(acls)


def add_cutover(commands: Commands) -> None:
    """`reo cutover plan`, `reo cutover run` and `reo cutover back`."""
    words = commands.add_parser(
        "cutover",
        help="move topics and their consumer groups to the destination",
        examples=help_examples.CUTOVER_PLAN + help_examples.CUTOVER_RUN.removeprefix("examples:\n"),
    ).add_subparsers(dest="what", required=True, metavar="WHAT")
    plan = words.add_parser(
        "plan",
        help="what it takes to move the topics now; changes nothing",
        examples=help_examples.CUTOVER_PLAN,
    )
    run = words.add_parser(
        "run",
        help="move the topics: wait until all is copied, verify, translate the groups' offsets",
        examples=help_examples.CUTOVER_RUN,
    )
    for command in (plan, run):
        _add_cutover_options(command)
    run.add_argument(
        "--deny-writes",
        action="store_true",
        help="deny everybody to write to the topics at the source, by an ACL",
    )
    run.add_argument("--dry-run", action="store_true", help="as cutover plan: change nothing")
    back = words.add_parser(
        "back",
        help="remove the DENY; undo the move, or set up the copy in the other direction",
        examples=help_examples.CUTOVER_BACK,
    )
    add_result_options(plan)
    add_result_options(run)
    add_settings_options(back)


def _add_cutover_options(command: ExamplesParser) -> None:
    """What the plan and the run have in common."""
    command.add_argument(
        "--groups",
        metavar="REGEX",
        type=parse_pattern,
        default=ALL_GROUPS,
        help=(
            "the groups that move; the whole name has to match (default: all that read the topics)"
        ),
    )
    command.add_argument(
        "--quiet",
        metavar="SECONDS",
        type=parse_seconds,
        default=10.0,
        help="producers have stopped when nothing was written for so long (default 10)",
    )
    command.add_argument(
        "--resume",
        metavar="FILE",
        help="as in reo verify: continue the comparison that this file describes",
    )
