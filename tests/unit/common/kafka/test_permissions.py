"""What is said of missing permissions: whom the brokers see, and a command that a shell takes."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.kafka.needed_acls import NeededPermission, list_needed
from common.kafka.permissions import describe_missing
from common.settings import load
from common.settings.security import Security
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize(
    ("security", "principal", "for_the_shell"),
    [
        (Security(), "User:ANONYMOUS", "User:ANONYMOUS"),
        (Security("SSL"), "User:ANONYMOUS", "User:ANONYMOUS"),
        (
            Security("SSL", ssl_certificate_file="c.pem"),
            "the principal of its certificate (User:… below)",
            "User:…",
        ),
        (Security("SASL_SSL", "PLAIN", "the reader"), "User:the reader", "User:the reader"),
        (
            Security("SASL_SSL", "AWS_MSK_IAM"),
            "the principal of its token (User:… below)",
            "User:…",
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, Security) else "",
)
def test_the_principal_is_the_one_that_brokers_see(
    security: Security, principal: str, for_the_shell: str
) -> None:
    """Without a certificate or a name it is ANONYMOUS; a name that only the broker knows is left to
    be filled in, in quotes.
    """
    cluster = SimpleNamespace(name="source", bootstrap_servers="a:1", security=security)
    settings = SimpleNamespace(source_cluster=cluster, destination_cluster=cluster)
    row = next(row for row in list_needed(["lag"]) if row.side == "source")
    said = describe_missing(cast(Any, settings), ["lag"], [NeededPermission(row, "orders")])
    assert said.startswith(
        f"`reo lag` is refused what it needs: the source cluster does not allow {principal}: "
    )
    words = shlex.split(said.partition("To grant it: ")[2])
    assert words[words.index("--allow-principal") + 1] == for_the_shell


def test_two_commands_are_a_plural() -> None:
    """Of a check for both stages."""
    said = describe_missing(load(GOOD), ["run replicator", "run deduplicator"], [])
    assert said.startswith(
        "`reo run replicator` and `reo run deduplicator` are refused what they need: "
    )
