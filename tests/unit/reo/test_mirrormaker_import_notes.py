"""What `reo config import` cannot express of MirrorMaker 2 is named: each property becomes a
setting or a note, none is dropped unsaid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reo import cli
from reo.importers.mirrormaker import import_settings
from reo.importers.mirrormaker_properties import choose_flow, parse_properties
from tests.harness.mirrormaker_files import SAMPLE, SECURED, import_text

CONNECTOR_PROPERTIES = """
admin.timeout.ms config.action.reload config.properties.exclude
config.property.filter.class config.providers connector.class connector.plugin.version
consumer.poll.timeout.ms emit.offset-syncs.enabled errors.log.enable errors.retry.timeout
errors.tolerance forwarding.admin.class header.converter heartbeats.replication.enabled
key.converter metric.names.formats metric.reporters name offset-syncs.topic.location
offset-syncs.topic.replication.factor offset.lag.max predicates refresh.topics.enabled
refresh.topics.interval.seconds replication.factor replication.policy.class
replication.policy.internal.topic.separator.enabled replication.policy.separator
sasl.client.callback.handler.class sasl.kerberos.service.name sasl.login.class
sasl.oauthbearer.jwks.endpoint.url ssl.cipher.suites ssl.enabled.protocols ssl.engine.factory.class
sync.topic.acls.enabled sync.topic.acls.interval.seconds sync.topic.configs.enabled
sync.topic.configs.interval.seconds tasks.max tasks.max.enforce topic.filter.class topics
topics.exclude transforms value.converter checkpoints.topic.replication.factor
emit.checkpoints.enabled emit.checkpoints.interval.seconds group.filter.class groups groups.exclude
refresh.groups.enabled refresh.groups.interval.seconds sync.group.offsets.enabled
sync.group.offsets.interval.seconds emit.heartbeats.enabled emit.heartbeats.interval.seconds
heartbeats.topic.replication.factor
"""
"""Of the three connectors of Kafka 4.3.1: CONNECTOR_CONFIG_DEF of each, with samples of TLS's and
SASL's.
"""


def test_no_property_is_dropped_unsaid() -> None:
    """Take any away: a setting, a topic or a note changes. Listed are those that say what is so
    anyhow.
    """
    same_without = {
        "clusters",  # without it there is no flow
        "eu->us.enabled",
        "us->eu.enabled",
        "sync.topic.acls.enabled",
        "eu.ssl.truststore.type",
    }

    def convert(properties: dict[str, str]) -> Any:
        imported = import_settings(choose_flow(properties, "eu->us"))
        return imported.values, imported.topics, imported.notes

    properties = parse_properties(SECURED)
    for key in properties.keys() - same_without:
        without = {name: value for name, value in properties.items() if name != key}
        assert convert(without) != convert(properties), key


@pytest.mark.parametrize("key", CONNECTOR_PROPERTIES.split())
def test_every_property_of_the_connectors_is_known(key: str) -> None:
    """None is called unknown, of whatever level it is."""
    properties = parse_properties(SAMPLE)
    for name in (key, f"A->B.{key}"):
        notes = import_settings(choose_flow(properties | {name: "org.example"}, "A->B")).notes
        assert not [note for note in notes if "unknown key" in note[1]], name
    notes = import_settings(choose_flow(properties | {"tasks.maxx": "1"}, "A->B")).notes
    assert ("tasks.maxx", "unknown key of MirrorMaker 2; it is not imported") in notes


@pytest.mark.parametrize(
    ("more", "key", "why"),
    [
        ("A->B.topics = \\\\p{Alpha}+", "A->B.topics", "write the rule by hand"),
        ("A->B.topics =", "A->B.topics", "nothing to copy"),
        ("A->B.topics = orders\nA->B.topics.exclude = ord.*", "A->B.topics.exclude", "orders"),
        ("replication.policy.class = com.example.Policy", "replication.policy.class", "unknown"),
        ("replication.factor = many", "replication.factor", "no counterpart"),
        ("A.security.protocol = SASL_SSL", "source.cluster.sasl.mechanism", "not GSSAPI"),
        ("A.sasl.mechanism = PLAIN", "A.sasl.mechanism", "is PLAINTEXT, so it is not used"),
        ("security.protocol = SSL\nssl.protocol = TLSv1.3", "ssl.protocol", "a raw option"),
        ("B.bootstrap.servers = ${file:a:b}", "B.bootstrap.servers", "is a reference"),
        (
            "A.consumer.isolation.level = read_uncommitted",
            "A.consumer.isolation.level",
            "aborted transactions",
        ),
    ],
)
def test_what_can_not_be_expressed_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: str, key: str, why: str
) -> None:
    """The property as the user wrote it, and the reason or what to do."""
    _, notes = import_text(capsys, tmp_path, f"{SAMPLE}{more}\n", options=("--flow", "A->B"))
    assert why in notes[key]


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        ("A.consumer.ssl.key.password = s3cret", "REO_SOURCE_CONSUMER_OPTIONS_SSL_KEY_PASSWORD"),
        (
            "A.consumer.ssl.keystore.password = s3cret",
            "REO_SOURCE_CONSUMER_OPTIONS_SSL_KEYSTORE_PASSWORD",
        ),
        (
            "A.consumer.basic.auth.user.info = me:s3cret",
            "REO_SOURCE_CONSUMER_OPTIONS_BASIC_AUTH_USER_INFO",
        ),
        ('A.sasl.jaas.config = m required password="s3cret${x";', "REO_SOURCE_SASL_PASSWORD"),
        ('A.sasl.jaas.config = m required password="${a}s3cret";', "set source.sasl_password"),
        ("A.ssl.truststore.password = s3cret${a:b}", "its value is a reference"),
    ],
)
def test_no_secret_is_in_a_note(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, variable: str
) -> None:
    """Not as a raw option of a client either, and not one that looks like a reference."""
    secured = "A.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\n"
    file, notes = import_text(
        capsys, tmp_path, f"{SAMPLE}{secured}{line}\n", options=("--flow", "A->B")
    )
    assert variable in notes[line.partition(" ")[0]]
    assert "s3cret" not in file + str(notes)


@pytest.mark.parametrize(
    ("more", "key", "said", "is_enabled"),
    [
        ("exactly.once.source.support = enabled", "exactly.once.source.support", True, False),
        ("B.exactly.once.source.support = enabled", "", False, True),
        ("B.exactly.once.source.support = no", "B.exactly.once.source.support", False, False),
        (
            "exactly.once.source.support = no\nB.exactly.once.source.support = enabled",
            "exactly.once.source.support",
            True,
            True,
        ),
    ],
)
def test_exactly_once_counts_with_the_alias(
    more: str, key: str, said: bool, is_enabled: bool
) -> None:
    """One note: that the key has no effect, and what MirrorMaker 2 may have copied twice."""
    properties = parse_properties(f"{SAMPLE}{more}\n")
    notes = [
        note
        for note in import_settings(choose_flow(properties, "A->B")).notes
        if "exactly.once.source.support" in note[0]
    ]
    assert [note[0] for note in notes] == ([key] if key else [])
    text = notes[0][1] if notes else ""
    assert ("only with the target's alias (B.exactly.once.source.support)" in text) == said
    assert ("may have records twice" in text) != is_enabled


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a = 1", (), "`clusters`"),
        ("clusters = A, B", (), "no flow is enabled"),
        ("clusters = A, B", ("--flow", "A->C"), "no flow 'A->C'"),
        ('{"connector.class": "x.Y"}', (), "a connector of MirrorMaker 2"),
    ],
)
def test_a_file_without_the_flow_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    options: tuple[str, ...],
    said: str,
) -> None:
    """Exit code 2, and what is missing."""
    (tmp_path / "mm2.properties").write_text(text)
    assert cli.main(["config", "import", str(tmp_path / "mm2.properties"), *options]) == 2
    assert said in capsys.readouterr().err
