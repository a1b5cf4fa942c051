"""ACLs on real brokers with an authorizer: `reo acls` never allows more at the destination than at
the source; the DENY of `reo cutover` keeps writers out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from common import settings as reo_settings
from common.errors import AccessRefused
from common.kafka.clients import create_admin_client
from reo.migration.acl_client import AclClient, build_topic_acl
from reo.migration.acls import AclComparison
from reo.migration.write_denial import WriteDenial, build_deny_acl
from tests.harness.authorized import PASSWORD, Authorized
from tests.harness.commands import as_json, reo
from tests.harness.kafka import Clusters, until
from tests.harness.service import build_environment

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE = AclOperation.READ, AclOperation.WRITE
Stand = tuple[Authorized, Authorized]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A source that allows what its ACLs say, and a destination where a topic without ACLs is
    everybody's.
    """
    folder, made = tmp_path_factory.mktemp("acls"), list[Authorized]()
    try:
        made += [
            Authorized(folder / "source", ["shop", "reo"]),
            Authorized(folder / "destination", ["shop", "reo"], open_without_acls=True),
        ]
        for side in made:
            side.ready()
        yield made[0], made[1]
    finally:
        for side in made:
            side.broker.kill()


def clusters_of(stand: Stand) -> Clusters:
    """For the judge, who may do everything."""
    return Clusters(stand[0].cluster, stand[1].cluster)


def create_topic_on_both(stand: Stand, topic: str) -> Clusters:
    """The topic on both sides."""
    for side in stand:
        side.cluster.create(topic, 1)
    return clusters_of(stand)


def acls_of(side: Authorized, topic: str) -> set[AclBinding]:
    """All that name this topic exactly."""
    return set(
        AclClient(
            reo_settings.load(
                build_environment(
                    Clusters(side.cluster, side.cluster), topic, {"destination_topic": "x"}
                )
            ).source_cluster,
            side.cluster.admin,
        ).describe(topic)
    )


def build_pattern_acl(
    name: str,
    principal: str,
    operation: AclOperation,
    permission: AclPermissionType,
    pattern: ResourcePatternType,
) -> AclBinding:
    """An ACL of another pattern than a topic's own name."""
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", operation, permission)


def test_who_may_read_goes_over_and_nobody_gets_more(
    stand: Stand, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading by the topic's name, and every DENY, as one of this topic; nothing by prefix or
    wildcard, no writer, no DENY of ours. The DENY is there first.
    """
    clusters = create_topic_on_both(stand, topic)
    source, destination = stand
    reads, writes, denial = (
        build_topic_acl(topic, "User:shop", "*", READ, ALLOW),
        build_topic_acl(topic, "User:shop", "10.0.0.1", WRITE, ALLOW),
        build_deny_acl(topic),
    )
    by_prefix = build_pattern_acl(
        topic[:-2], "User:prefix", READ, ALLOW, ResourcePatternType.PREFIXED
    )
    denied_by_prefix = build_pattern_acl(
        topic[:-1], "User:mallory", READ, DENY, ResourcePatternType.PREFIXED
    )
    source.allow([reads, writes, denial, by_prefix, denied_by_prefix])
    own = build_topic_acl(topic, "User:reo", "*", AclOperation.ALL, ALLOW)
    destination.allow([own])
    rows = {
        (row["principal"], row["operation"], row["permission"]): (row["created_as"], row["why"])
        for row in as_json(clusters, topic, "acls")["acls"]
        if row["cluster"] == "source"
    }
    assert (
        rows[("User:shop", "READ", "ALLOW")]
        == rows[("User:mallory", "READ", "DENY")]
        == (topic, "")
    )
    assert {who: why for who, (new, why) in rows.items() if new is None} == {
        (
            "User:shop",
            "WRITE",
            "ALLOW",
        ): "left out: only with --with-write: another writer breaks a running copy",
        ("User:prefix", "READ", "ALLOW"): "left out: it covers other topics too",
        ("User:*", "WRITE", "DENY"): "left out: the DENY of `reo cutover run`",
    }
    assert acls_of(destination, topic) == {own}, "nothing was changed"

    create, seen = AclClient.create, list[tuple[set[Any], set[AclBinding]]]()

    def spy(client: AclClient, acls: Sequence[AclBinding]) -> None:
        seen.append(({acl.permission_type for acl in acls}, acls_of(destination, topic)))
        create(client, acls)

    monkeypatch.setattr(AclClient, "create", spy)
    AclComparison(
        reo_settings.load(build_environment(clusters, topic, {})), with_write=False
    ).apply()
    denied = build_topic_acl(topic, "User:mallory", "*", READ, DENY)
    assert seen == [({DENY}, {own}), ({ALLOW}, {own, denied})]
    assert acls_of(destination, topic) == {own, denied, reads}
    assert "there is nothing to create" in reo(clusters, topic, "acls", "--apply").stdout
    assert "ACLs created: 1" in reo(clusters, topic, "acls", "--apply", "--with-write").stdout
    assert acls_of(destination, topic) == {own, denied, reads, writes}


def test_what_would_stop_the_service_is_not_created(stand: Stand, topic: str) -> None:
    """A DENY for everybody is left out, and no ALLOW goes over without it; neither does a topic's
    first ACL to a cluster that is open without.
    """
    clusters = create_topic_on_both(stand, topic)
    source, destination = stand
    reads = build_topic_acl(topic, "User:shop", "*", READ, ALLOW)
    source.allow([reads])
    loaded = reo_settings.load(build_environment(clusters, topic, {}))
    comparison = AclComparison(loaded, with_write=False)
    assert comparison.new_acls == []
    assert "the destination sets allow.everyone.if.no.acl.found" in comparison.rows[0].reason
    own = build_topic_acl(topic, "User:reo", "*", AclOperation.ALL, ALLOW)
    destination.allow([own])
    assert AclComparison(loaded, with_write=False).new_acls == [reads]
    source.allow([build_topic_acl(topic, "User:*", "*", AclOperation.DESCRIBE, DENY)])
    comparison = AclComparison(loaded, with_write=False)
    comparison.apply()
    assert [row.reason.partition(" (")[0] for row in comparison.rows] == [
        "left out: it would stop the service",
        "left out: a DENY of this topic cannot be created",
        "here only: stays",
    ]
    assert acls_of(destination, topic) == {own}


def test_a_shared_destination_gets_no_acls(stand: Stand, topic: str) -> None:
    """Who may read one source would read the other, too."""
    clusters = create_topic_on_both(stand, topic)
    stand[0].allow([build_topic_acl(topic, "User:shop", "*", READ, ALLOW)])
    more = {"source_topic": "", "topics": f"^{topic}.*=all-{topic}", "application": f"reo-{topic}"}
    comparison = AclComparison(
        reo_settings.load(build_environment(clusters, topic, more)), with_write=True
    )
    assert [(row.new, row.reason) for row in comparison.rows] == [
        (None, "left out: the destination topic may have other records")
    ]


def test_the_deny_keeps_writers_out_until_it_is_removed(stand: Stand, topic: str) -> None:
    """A producer that may write is refused by the DENY, and may again after `reo cutover
    back` where that knows whether the topic has moved.
    """
    clusters = create_topic_on_both(stand, topic)
    source = stand[0]
    source.allow([build_topic_acl(topic, "User:shop", "*", WRITE, ALLOW)])
    producer = Producer(
        {
            "bootstrap.servers": source.at,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "shop",
            "sasl.password": f"{PASSWORD}shop",
            "enable.idempotence": True,
            "log_level": 0,
        }
    )

    def write() -> int | None:
        errors: list[KafkaError | None] = []
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        except KafkaException as refused:  # the client knows by now
            errors.append(refused.args[0])
        assert producer.flush(30) == 0
        return errors[0] and errors[0].code()

    assert until(lambda: write() is None, "it may write")
    loaded = reo_settings.load(build_environment(clusters, topic, {}))
    denial = WriteDenial(loaded.source_cluster, create_admin_client(loaded.source_cluster, loaded))
    denial.add([topic])
    denial.add([topic])
    assert denial.find_denied([topic]) == [topic]
    assert until(lambda: write() == KafkaError.TOPIC_AUTHORIZATION_FAILED, "it is denied")
    ends = source.cluster.end_offsets(topic)
    assert write() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert source.cluster.end_offsets(topic) == ends
    assert "stay denied" in reo(clusters, topic, "cutover", "back", exit_code=22).stdout
    assert denial.find_denied([topic]) == [topic]
    reo(clusters, topic, "recover", "--apply")  # now the frontiers say that nothing has moved
    assert (
        f"producers may write to {topic} at the source again"
        in reo(clusters, topic, "cutover", "back").stdout
    )
    assert until(lambda: write() is None, "it may write again")
    assert acls_of(source, topic) == {build_topic_acl(topic, "User:shop", "*", WRITE, ALLOW)}
    assert f"writes are not denied: {topic}" in reo(clusters, topic, "cutover", "back").stdout


def test_who_may_not_deny_is_told_what_is_missing(stand: Stand, topic: str) -> None:
    """The command that permits it."""
    clusters = create_topic_on_both(stand, topic)
    named = reo_settings.load(
        build_environment(
            clusters,
            topic,
            {f"source_{name}": value for name, value in stand[0].access("reo").items()},
        )
    )
    with pytest.raises(
        AccessRefused, match="--add --allow-principal User:reo --operation Alter --cluster"
    ):
        WriteDenial(named.source_cluster, create_admin_client(named.source_cluster, named)).add(
            [topic]
        )
