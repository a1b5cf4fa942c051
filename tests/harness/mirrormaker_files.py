"""Configurations of MirrorMaker 2 as users have them, and the command that imports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reo import cli

SAMPLE = """
# as config/connect-mirror-maker.properties of Kafka's distribution
clusters = A, B
A.bootstrap.servers = A_host1:9092, A_host2:9092, A_host3:9092
B.bootstrap.servers = B_host1:9092, B_host2:9092, B_host3:9092
A->B.enabled = true
A->B.topics = .*
B->A.enabled = true
B->A.topics = .*
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
"""
SECURED = r"""
clusters=eu,us
tasks.max = 4
eu.bootstrap.servers=kafka.eu.example.com:9093
eu.security.protocol=SASL_SSL
eu.sasl.mechanism=SCRAM-SHA-512
eu.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="mm2" \
    password="s3cr3t-\\"eu";
eu.ssl.truststore.location=CA
eu.ssl.truststore.type=PEM
eu.ssl.endpoint.identification.algorithm=
eu.consumer.isolation.level=read_committed
eu.consumer.max.partition.fetch.bytes=2000000
eu.consumer.auto.offset.reset=latest
eu.consumer.group.id=mm2
us.bootstrap.servers=kafka.us.example.com:9093
us.security.protocol=SSL
us.ssl.truststore.location=/etc/mm2/us.jks
us.ssl.truststore.password=changeit
us.ssl.keystore.location=KEYS
us.ssl.keystore.type=PEM
us.producer.compression.type=zstd
us.producer.linger.ms=50
us.producer.batch.size=262144
us.producer.acks=1
us.exactly.once.source.support=enabled
us.offset.flush.interval.ms=10000
us.client.id=mm2
eu->us.enabled=true
eu->us.topics=orders, logs-.*
eu->us.topics.exclude=logs-tmp-.*
eu->us.groups=billing,shop-.*
us->eu.enabled=false
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor=3
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=10
sync.topic.acls.enabled=true
sync.topic.configs.enabled=false
refresh.topics.interval.seconds=30
emit.heartbeats.enabled=false
offset-syncs.topic.location=target
transforms=mask
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
dedicated.mode.enable.internal.rest=true
topic.filter.class=com.example.Filter
consumer.max.poll.records=500
errors.tolerance=all
"""
STRIMZI = [
    {
        "name": "a->b.MirrorSourceConnector",
        "config": {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "name": "a->b.MirrorSourceConnector",
            "tasks.max": "2",
            "source.cluster.alias": "a",
            "source.cluster.bootstrap.servers": "a-kafka-bootstrap:9093",
            "source.cluster.security.protocol": "SASL_SSL",
            "source.cluster.sasl.mechanism": "SCRAM-SHA-512",
            "source.cluster.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required"
                ' username="mirror" password="${strimzifile:/tmp/mm2.properties:a.sasl.password}";'
            ),
            "source.cluster.ssl.truststore.location": "/tmp/kafka/clusters/a.truststore.p12",
            "source.cluster.ssl.truststore.password": "${strimzifile:/tmp/mm2.properties:a.ssl}",
            "source.cluster.ssl.truststore.type": "PKCS12",
            "target.cluster.alias": "b",
            "target.cluster.bootstrap.servers": "b-kafka-bootstrap:9092",
            "target.cluster.security.protocol": "PLAINTEXT",
            "topics": "orders",
            "topics.exclude": "",
            "replication.factor": "-1",
            "offset-syncs.topic.replication.factor": "-1",
            "sync.topic.acls.enabled": False,
            "refresh.topics.interval.seconds": "60",
        },
    },
    {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "groups": ".*",
        "groups.exclude": "",
        "checkpoints.topic.replication.factor": "-1",
        "sync.group.offsets.enabled": "true",
        "emit.checkpoints.interval.seconds": "60",
    },
]


def write_secured(tmp_path: Path) -> str:
    """The text of `SECURED`, with files that are there."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "keys.pem").write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----")
    return SECURED.replace("CA\n", f"{tmp_path / 'ca.pem'}\n").replace(
        "KEYS\n", f"{tmp_path / 'keys.pem'}\n"
    )


def import_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *texts: str, options: tuple[str, ...] = ()
) -> tuple[str, dict[str, str]]:
    """The settings file that the command prints, and its notes by key."""
    files = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.{'json' if text.startswith('{') else 'properties'}"
        file.write_text(text)
        files.append(str(file))
    assert cli.main(["config", "import", *files, *options]) == 0
    printed = capsys.readouterr()
    notes: dict[str, str] = {}
    for line in printed.err.splitlines():
        key, why = line.removeprefix("reo config import: ").split(": ", 1)
        notes[key] = f"{notes[key]}; {why}" if key in notes else why
    return printed.out, notes
