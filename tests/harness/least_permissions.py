"""The permissions of `common.kafka.permissions` as ACLs, for each command with a principal of its
own; and what a command says when one of them is missing.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AclBinding

from common.kafka.needed_acls import PERMISSIONS, Permission
from common.settings import load
from tests.harness.authorized import Authorized, acl
from tests.harness.commands import reo_with
from tests.harness.kafka import START_S, Clusters
from tests.harness.service import build_environment

BOUND_S = START_S
"""By then a missing permission has to be said; a start takes about one second."""
GROUP = "readers"
"""The consumer group of `reo offsets`."""
KINDS = {"Topic": "TOPIC", "Group": "GROUP", "TransactionalId": "TRANSACTIONAL_ID"}
OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}
COMMANDS = tuple(dict.fromkeys(command for row in PERMISSIONS for command in row.commands))
PRINCIPALS = {command: re.sub(r"\W+", "-", command) for command in COMMANDS} | {"run": "run"}


@dataclass
class Stand:
    """Both clusters, and what every command is allowed there."""

    source: Authorized
    destination: Authorized

    @property
    def clusters(self) -> Clusters:
        """For the judge, who may do everything."""
        return Clusters(self.source.cluster, self.destination.cluster)

    def environment(self, topic: str, principal: str) -> dict[str, str]:
        """Of a command that enters both clusters as this principal."""
        parks = (
            {"filter_function": "tests.harness.filter_functions:every", "filter_on_error": "park"}
            if principal.startswith("run")
            else {}
        )
        found = build_environment(self.clusters, topic, parks)
        for side, cluster in (("SOURCE", self.source), ("DESTINATION", self.destination)):
            found |= {
                f"REO_{side}_{name.upper()}": value
                for name, value in cluster.access(principal).items()
            }
        return found

    def binding(self, topic: str, principal: str, row: Permission) -> tuple[Authorized, AclBinding]:
        """A row as an ACL, and where it belongs."""
        loaded = load(self.environment(topic, principal))
        (name,) = row.list_names(loaded, loaded.build_routes(), GROUP)
        side = self.source if row.side == "source" else self.destination
        return side, acl(
            principal,
            KINDS[row.resource],
            name,
            OPERATIONS.get(row.operation, row.operation.upper()),
            row.resource == "TransactionalId",
        )

    def allow(self, topic: str, principal: str, rows: Sequence[Permission]) -> None:
        """Give exactly these."""
        for side in (self.source, self.destination):
            side.allow(
                [
                    binding
                    for where, binding in (self.binding(topic, principal, row) for row in rows)
                    if where is side
                ]
            )

    def run(self, topic: str, command: str, principal: str) -> subprocess.CompletedProcess[str]:
        """A command as a user gives it."""
        more = {"offsets": ["--group", GROUP], "pause": [topic]}
        words = [*command.split(), *more.get(command.split(maxsplit=1)[0], [])]
        return reo_with(
            self.environment(topic, principal), *words, exit_code=None, timeout_s=BOUND_S
        )


def build_expected_words(row: Permission, stand: Stand, topic: str, command: str) -> list[str]:
    """What the message has to have: cluster, operation, resource and its name, and the command that
    grants it.
    """
    _, binding = stand.binding(topic, PRINCIPALS[command], row)
    flag = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}[
        row.resource
    ]
    return [
        (
            f"the {row.side} cluster does not allow User:{PRINCIPALS[command]}: {row.operation} on"
            f" {row.resource} {binding.name}"
        ),
        f"--operation {row.operation} ",
        f"{flag} {binding.name}",
    ]
