"""The ACLs that each command needs at least, in one table. docs/reference.md shows it, and says
what `reo acls` and `reo cutover` need beyond it.

Read, Write and Delete of a topic, and Read of a group, include Describe (Kafka's documentation,
"Authorization and ACLs"): a row has Describe only where nothing else of the same resource is
needed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, get_args

from common.routes import Route
from common.settings import Settings

Command = Literal[
    "run replicator",
    "run deduplicator",
    "verify",
    "recover",
    "recover --apply",
    "topics",
    "topics --apply",
    "offsets translate",
    "offsets translate --apply",
    "status",
    "lag",
    "inspect",
    "pause",
]
OF_STAGE: dict[str, Command] = {"replicator": "run replicator", "deduplicator": "run deduplicator"}
STAGES = tuple(OF_STAGE.values())
PARKED = "parked topic"
ONLY_OF_TOPICS = ("destination.topic", "application-")
"""With `destination.class` there is no destination topic and no transaction."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One ACL: an operation on the resource that a setting names, for the commands that need it."""

    side: str
    resource: str
    named_by: str
    operation: str
    patterns: tuple[str, ...]
    commands: tuple[Command, ...]
    why: str

    def list_names(
        self, settings: Settings, routes: Collection[Route], group: str = ""
    ) -> list[str]:
        """The resource's names, for topics by route; `group` is that of the command line."""
        parks = settings.filter.on_error == "park"
        names = {
            "source.topic": [route.source_topic for route in routes],
            "destination.topic": [route.destination_topic for route in routes],
            "intermediate.topic": [route.intermediate_topic for route in routes],
            PARKED: [route.parked_topic for route in routes if parks],
            "application": [settings.application],
            "application-routes": [settings.routes_group],
            "application-": [f"{settings.application}-"],
            "--group": [group] if group else [],
        }
        return list(dict.fromkeys(names[self.named_by]))


ACLS = """
source Topic source.topic
  Read: run replicator, verify, recover*, offsets *, status, lag
    the records
  Describe: run deduplicator, topics*, inspect, pause
    its id, partitions and offsets: where a copy begins
  DescribeConfigs: run *, verify, recover*, topics*
    what the copy takes over; the largest record; compaction
source Group --group
  Describe: offsets *
    the offsets that are translated
destination Topic destination.topic
  Create: run *, topics --apply
    only to create it
  Alter: run *, recover --apply, topics --apply
    only to add partitions
  AlterConfigs: topics --apply
    what `reo topics` changes; includes DescribeConfigs
  Describe: run replicator, topics*, status, lag
    that it is there and has the partitions
  DescribeConfigs: run *, verify, recover*, topics
    timestamps, the largest record, compaction
  Read: run deduplicator, verify, recover*, offsets *
    the check at the start; the records
  Write: run deduplicator
    the copy
destination Topic intermediate.topic
  Create: run *, recover --apply, topics --apply
    only to create it
  Alter: run *, recover --apply, topics --apply
    only to add partitions
  AlterConfigs: topics --apply
    what `reo topics` changes; includes DescribeConfigs
  DescribeConfigs: run *, recover --apply, topics
    the largest record
  Read: run deduplicator, recover --apply, status, lag, inspect, pause
    its records; the offsets of both groups on it
  Describe: recover, offsets *, topics*
    the group's offsets on it; its partitions
  Write: run replicator
    what was read at the source
  Delete: run deduplicator
    to delete what is copied
destination Topic parked topic
  Create: run *
    only to create it
  Describe: run replicator
    that it is there
  Write: run deduplicator
    records on which the filter fails
destination Group application
  Read: run deduplicator, recover --apply
    its members; the frontier
  Describe: run replicator, recover, offsets *, status, lag
    the frontier
destination Group application-routes
  Read: run deduplicator, pause
    which routes are paused
  Describe: run replicator, status, lag
    which routes are paused
destination Group --group
  Describe: offsets translate
    the offsets that it has there
  Read: offsets translate --apply
    the commit
destination TransactionalId application-
  Write: run deduplicator
    the transactions
"""
"""Cluster, resource and what names it; below it each operation with the commands that need it (the
`patterns` of a permission), and what for. `*` stands for any end of a command: `recover*` is
`recover` and `recover --apply`.
"""


def _parse_acls() -> Iterator[Permission]:
    for heading, rows in re.findall(r"^(\w.+)\n((?: .+\n)+)", ACLS, re.MULTILINE):
        side, resource, named_by = heading.split(maxsplit=2)
        for operation, patterns, why in re.findall(r"(\w+): (.+)\n +(.+)", rows):
            each = tuple(patterns.split(", "))
            commands = chain(*(fnmatch.filter(get_args(Command), one) for one in each))
            yield Permission(side, resource, named_by, operation, each, tuple(commands), why)


PERMISSIONS: tuple[Permission, ...] = tuple(_parse_acls())


def list_commands(settings: Settings, stages: Iterable[str]) -> list[Command]:
    """The stages, and what the settings ask for beside stage two."""
    stages = list(stages)
    halts: list[Command] = ["pause"] if settings.on_stop == "route" else []
    beside: list[Command] = []
    if "deduplicator" in stages:
        beside += ["offsets translate --apply"] if settings.offsets.sync_groups else []
        beside += ["topics --apply"] if settings.topics.synced_configs else []
    return [*(OF_STAGE[stage] for stage in stages), *beside, *halts]


def list_needed(commands: Iterable[Command], to_tables: bool = False) -> list[Permission]:
    """The rows of these commands, without each Describe that another needed row includes."""
    command_set = set(commands)
    rows = [
        row
        for row in PERMISSIONS
        if command_set & set(row.commands) and not (to_tables and row.named_by in ONLY_OF_TOPICS)
    ]
    including = {
        (row.side, row.named_by) for row in rows if row.operation in ("Read", "Write", "Delete")
    }
    return [
        row
        for row in rows
        if row.operation != "Describe" or (row.side, row.named_by) not in including
    ]


class NeededPermission(NamedTuple):
    """A permission, and the name of the resource for which a command needs it."""

    row: Permission
    name: str
