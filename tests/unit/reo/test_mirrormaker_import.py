"""`reo config import`: a flow of MirrorMaker 2 becomes a settings file of reo's, which is read and
does what MirrorMaker 2 did.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.settings import load
from common.settings.settings import Settings
from reo import cli
from reo.importers.mirrormaker_properties import parse_properties
from reo.importers.mirrormaker_security import parse_jaas
from tests.harness.mirrormaker_files import SAMPLE, STRIMZI, import_text, write_secured
from tools.bench import mirrormaker


def read(tmp_path: Path, file: str, **environment: str) -> Settings:
    """The settings, as the service reads them."""
    (tmp_path / "reo.toml").write_text(file)
    return load(environment, str(tmp_path / "reo.toml"))


def list_routes(settings: Settings, topics: tuple[str, ...]) -> dict[str, str]:
    """What of these topics is copied, and to which."""
    return {route.source_topic: route.destination_topic for route in settings.build_routes(topics)}


def test_kafkas_sample(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two flows are two services; each copies what MirrorMaker 2 copies, by its default policy:
    neither internal topics, nor those that came from the other cluster.
    """
    (tmp_path / "mm2.properties").write_text(SAMPLE)
    assert cli.main(["config", "import", str(tmp_path / "mm2.properties")]) == 2
    error = capsys.readouterr().err
    assert "2 flows are enabled (A->B, B->A)" in error
    assert "--flow" in error
    file, notes = import_text(capsys, tmp_path, SAMPLE, options=("--flow", "B->A"))
    loaded = read(tmp_path, file)
    assert loaded.source.bootstrap_servers == "B_host1:9092,B_host2:9092,B_host3:9092"
    assert loaded.destination.bootstrap_servers == "A_host1:9092,A_host2:9092,A_host3:9092"
    assert (loaded.application, loaded.topics.replication_factor) == ("reo-B-A", 1)
    topics = ("orders", "x.orders", "A.orders", "x.A.orders", "Ax", "__consumer_offsets")
    internal = ("mm2-configs.A.internal", "heartbeats", "A.checkpoints.internal", "y.replica")
    assert list_routes(loaded, topics + internal) == {
        "orders": "B.orders",
        "x.orders": "B.x.orders",
        "Ax": "B.Ax",
    }
    assert "A->B" in notes
    assert "retention.ms" in loaded.topics.sync
    assert "min.insync.replicas" not in loaded.topics.sync


def test_security_names_groups_and_clients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The settings do what the flow did; no secret is printed; every note is also a comment."""
    secured = write_secured(tmp_path)
    file, notes = import_text(capsys, tmp_path, secured)
    assert "s3cr3t" not in file + str(notes)
    assert "changeit" not in file + str(notes)
    loaded = read(tmp_path, file, REO_SOURCE_SASL_PASSWORD="x")
    expected = {
        "source.bootstrap_servers": "kafka.eu.example.com:9093",
        "source.security_protocol": "SASL_SSL",
        "source.sasl_mechanism": "SCRAM-SHA-512",
        "source.sasl_username": "mm2",
        "source.ssl_ca_file": str(tmp_path / "ca.pem"),
        "source.start": "latest",
        "source.consumer_options": {
            "isolation.level": "read_committed",
            "max.partition.fetch.bytes": "2000000",
        },
        "destination.security_protocol": "SSL",
        "destination.ssl_ca_file": "",
        "destination.ssl_certificate_file": str(tmp_path / "keys.pem"),
        "destination.ssl_key_file": str(tmp_path / "keys.pem"),
        "producer.compression_type": "zstd",
        "producer.linger_ms": 50,
        "topics.replication_factor": 3,
        "topics.sync": "",
        "offsets.sync_groups": "(?!(?:console-consumer-.*|connect-.*|__.*)$)(?:billing|shop-.*)",
        "offsets.sync_interval_s": 10,
    }
    assert {name: loaded.values[name] for name in expected} == expected
    assert list_routes(loaded, ("orders", "orders2", "logs-a", "logs-tmp-a")) == {
        "orders": "orders",
        "logs-a": "logs-a",
    }
    assert {line[2:] for line in file.splitlines() if line.startswith("# ")} == {
        f"{key}: {why}" for key, why in notes.items()
    }
    for key, why in {
        "eu.sasl.jaas.config": "REO_SOURCE_SASL_PASSWORD_FILE",
        "eu.ssl.endpoint.identification.algorithm": "is checked",
        "eu.consumer.group.id": "not imported: Spark's tasks need a group of their own",
        "us.ssl.truststore.location": "keytool -list -rfc -keystore /etc/mm2/us.jks",
        "us.producer.acks": "always all",
        "us.producer.batch.size": "destination.producer_options",
        "us.client.id": "Kafka Connect's worker",
        "transforms": "changes no record",
        "transforms.mask.type": "changes no record",
        "topic.filter.class": "a class in Java",
        "consumer.max.poll.records": "MirrorMaker 2 does not use it either",
        "sync.topic.acls.enabled": "reo acls",
        "refresh.topics.interval.seconds": "found by itself",
        "offset-syncs.topic.location": "no topics of that kind",
        "tasks.max": "deduplicator.workers",
    }.items():
        assert why in notes[key], key
    assert "exactly.once.source.support" not in str(notes), "it was enabled"
    assert 's3cr3t-\\"eu' in import_text(capsys, tmp_path, secured, options=("--with-secrets",))[0]


def test_oauth_with_its_extensions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As Confluent Cloud documents it for Java's clients."""
    text = """\
clusters = a, b
a->b.enabled = true
a->b.topics = orders
a.bootstrap.servers = a:1
b.bootstrap.servers = b:1
a.security.protocol = SASL_SSL
a.sasl.mechanism = OAUTHBEARER
a.sasl.oauthbearer.token.endpoint.url = https://tokens.example/
a.sasl.jaas.config = m required clientId="c" extension_logicalCluster="lkc-1" \\
    extension_identityPoolId="pool-2";
"""
    file, _ = import_text(capsys, tmp_path, text)
    security = read(tmp_path, file, REO_SOURCE_SASL_PASSWORD="x").source.security
    assert security.sasl_oauth_extensions == "logicalCluster=lkc-1,identityPoolId=pool-2"


def test_strimzis_connectors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Their JSON, in one file each; a password that is a reference to a file is named as one."""
    file, notes = import_text(capsys, tmp_path, *map(json.dumps, STRIMZI))
    loaded = read(
        tmp_path, file, REO_SOURCE_SASL_PASSWORD="x", REO_DESTINATION_BOOTSTRAP_SERVERS="b:1"
    )
    assert (loaded.source.topic, loaded.destination.topic) == ("orders", "a.orders")
    assert loaded.source.security.sasl_username == "mirror"
    assert (loaded.offsets.sync_groups, loaded.topics.replication_factor) == ("(?:.*)", -1)
    assert "set source.sasl_password" in notes["source.cluster.sasl.jaas.config"]
    assert "PKCS12" in notes["source.cluster.ssl.truststore.location"]
    assert "sync.topic.acls.enabled" not in notes


def test_the_benchs_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file that a real MirrorMaker 2 runs with, whose aliases are `source` and `target`."""
    text = mirrormaker.PROPERTIES.format(
        source="a:1", destination="b:1", topic="orders", port=1, name="x"
    )
    loaded = read(tmp_path, import_text(capsys, tmp_path, text)[0])
    assert (loaded.source.bootstrap_servers, loaded.destination.bootstrap_servers) == ("a:1", "b:1")
    assert (loaded.source.topic, loaded.destination.topic) == ("orders", "orders")
    assert loaded.offsets.sync_groups == ""


def test_properties_are_read_as_by_java() -> None:
    """What java.util.Properties made of this text, but for white space at the ends of values."""
    text = (
        "# comment\n  ! another = one\na=1\nb : 2\nc 3\nd\\ e = x\\\n    y\\\n  # not a comment\n"
        'f=\\u00e9\\u0041 \\t| \\"q\\" \\\\\r\ng\nh=\ni\\:j==k\nl=a\\\\\nm=n\\\\\\\no\n  p\tq r \n'
        "q=\\ud83d\\ude00"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d e": "xy# not a comment",
        "f": 'éA \t| "q" \\',
        "g": "",
        "h": "",
        "i:j": "=k",
        "l": "a\\",
        "m": "n\\o",
        "p": "q r",
        "q": "😀",
    }


def test_jaas_is_read_as_by_java() -> None:
    """Quotes of both kinds, escapes in them, and no quotes."""
    assert parse_jaas(
        r"""x.PlainLoginModule required username="a\"b\\c" password='d e' user_x=f; """
    ) == {"username": 'a"b\\c', "password": "d e", "user_x": "f"}
