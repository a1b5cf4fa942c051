"""Raw client options: each reaches its client, on real brokers; what harms or is not taken ends the
service; secrets are shown nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.conftest import Start
from tests.harness.kafka import ROOT, UNFENCED, Cluster, Clusters, make_records, until
from tests.harness.service import STOP_S, stopped
from tests.unit.common.kafka.test_client_options import build_options_environment
from tools.demo.broker import Broker

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The lowest three bits of a batch's attributes (Kafka's documentation, "Message Format")."""


def codecs(folder: Path) -> set[int]:
    """The codecs of all batches of a partition that are not markers, from its files (message format
    v2).
    """
    found = set()
    for file in sorted(folder.glob("*.log")):
        content, place = file.read_bytes(), 0
        while (
            place + 61 <= len(content)
            and (length := int.from_bytes(content[place + 8 : place + 12], "big")) > 0
        ):
            attributes = int.from_bytes(content[place + 21 : place + 23], "big")
            if not attributes & 0x20:
                found.add(attributes & 7)
            place += 12 + length
    return found


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that logs each request with its client's id."""
    broker = Broker(
        tmp_path_factory.mktemp("listening") / "broker",
        ROOT / "jars" / "broker",
        settings=UNFENCED,
        java_options=("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",),
    )
    try:
        yield Cluster(broker.start().wait())
    finally:
        broker.kill()


def fetches(broker: Broker) -> list[dict[str, Any]]:
    """The fetches that a broker has answered: request and header."""
    lines = (broker.folder / "broker.log").read_text(errors="replace").splitlines()
    found = [
        json.loads(line.partition("Completed request:")[2])
        for line in lines
        if "Completed request:" in line and '"requestApiKeyName":"FETCH"' in line
    ]
    return [{**entry["request"], "clientId": entry["requestHeader"]["clientId"]} for entry in found]


def list_clients(cluster: Cluster, group: str) -> list[str]:
    """The client ids of the group's members; none while it rebalances, or nobody answers."""
    try:
        described = cluster.admin.describe_consumer_groups([group])[group].result()
    except KafkaException:
        return []
    return [member.client_id for member in described.members]


def test_options_reach_their_clients(
    clusters: Clusters, listening: Cluster, topic: str, start: Start
) -> None:
    """The source's broker sees rack, name and fetch size of stage one's consumer; the destination's
    broker stores what each producer compressed, and knows stage two's consumer by the name it was
    given. A name that Kafka's Java client does not know is warned of, with the nearest.
    """
    both = Clusters(listening, clusters.destination)
    listening.create(topic, 2)
    listening.write(topic, make_records(range(3000), 2))
    service = start(
        topic,
        source_bootstrap_servers=listening.address,
        **build_options_environment(
            "source.consumer_options",
            {
                "client.id": "stage-one-reads",
                "client.rack": "rack-7",
                "fetch.max.bytes": "1234567",
                "fetch.max.byte": "1",
            },
        ),
        **build_options_environment("intermediate.producer_options", {"compression.type": "lz4"}),
        **build_options_environment(
            "intermediate.consumer_options", {"client.id": "stage-two-reads"}
        ),
        **build_options_environment("destination.producer_options", {"compression.type": "zstd"}),
    )
    both.wait_for_copy(topic, 3000)
    until(
        lambda: list_clients(clusters.destination, f"reo-{topic}") == ["stage-two-reads"],
        "the group has one member, of this name",
    )
    seen = [fetch for fetch in fetches(listening.broker) if fetch["clientId"] == "stage-one-reads"]
    assert seen
    assert {(fetch["rackId"], fetch["maxBytes"]) for fetch in seen} == {("rack-7", 1234567)}
    data = clusters.destination.broker.folder / "data"
    # empty envelopes come from another client, uncompressed
    assert codecs(data / f"{topic}-proxy-0") - {CODECS["none"]} == {CODECS["lz4"]}
    assert codecs(data / f"{topic}-0") == {CODECS["zstd"]}
    assert (
        "source.consumer_options: fetch.max.byte is no option of Kafka's client (did you mean"
        " fetch.max.bytes?)" in service.log
    )
    service.stop()
    assert both.differences(topic) == []


def test_the_switch_is_loud_and_secrets_are_silent(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """With the switch an option that was refused is passed, and every process says so; secret
    options are in no log, at the highest level.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(100), 1))
    secret = "s3cr3t-of-an-0ption"
    service = start(
        topic,
        log_level="DEBUG",
        allow_unsafe_options="true",
        **build_options_environment(
            "intermediate.consumer_options", {"check.crcs": "false", "ssl.key.password": secret}
        ),
        **build_options_environment("source.consumer_options", {"ssl.key.password": secret}),
        **build_options_environment(
            "intermediate.producer_options", {"ssl.truststore.password": secret}
        ),
        **build_options_environment(
            "destination.producer_options", {"ssl.key.password": secret, "debug": "broker"}
        ),
    )
    clusters.wait_for_copy(topic, 100)
    warned = [
        line
        for line in service.log.splitlines()
        if "UNSAFE: intermediate.consumer_options sets check.crcs" in line
    ]
    assert {re.split(r"\s+", line)[2] for line in warned} == {
        "reo:",
        "replicator:",
        "deduplicator-0:",
    }
    assert all(" WARNING " in line and "damaged records would be copied" in line for line in warned)
    service.stop()
    assert secret not in service.log


@pytest.mark.parametrize(
    ("setting", "options", "words"),
    [
        (
            "destination.producer_options",
            {"linger.ms": "-1"},
            ("destination.producer_options (linger.ms)", "outside allowed range"),
        ),
        (
            "intermediate.consumer_options",
            {"no.such.option": "1"},
            ("intermediate.consumer_options", "No such configuration property"),
        ),
        (
            "intermediate.consumer_options",
            {"security.protocol": "ssl", "ssl.key.pem": "s3cr3t"},
            ("intermediate.consumer_options",),
        ),
    ],
)
def test_what_a_client_does_not_take_ends_the_service(
    clusters: Clusters,
    topic: str,
    start: Start,
    setting: str,
    options: dict[str, str],
    words: tuple[str, ...],
) -> None:
    """One error that names the table, exit code 2, nothing tried again and again; a value that may
    be secret is not in it.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    more = build_options_environment(setting, options) | {"allow_unsafe_options": "true"}
    service = start(topic, "deduplicator", **more)
    stopped(service, 2, "SettingsInvalid", *words)
    assert "s3cr3t" not in service.log


@pytest.mark.long
def test_what_kafkas_java_client_does_not_take_ends_the_service(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """It says so when the first record is read: the run is not begun again and again."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    service = start(
        topic, **build_options_environment("source.consumer_options", {"fetch.max.bytes": "many"})
    )
    assert service.wait_for_exit() == 2
    refused = [line for line in service.errors if "replicator: SettingsInvalid" in line]
    assert len(refused) == 1
    assert (
        "the value of fetch.max.bytes: Not a number of type INT: check source.consumer_options"
        in refused[0]
    )


def test_a_harmful_option_ends_the_start(clusters: Clusters, topic: str, start: Start) -> None:
    """Before any client is made: nothing is created."""
    clusters.source.create(topic, 1)
    service = start(
        topic, **build_options_environment("destination.producer_options", {"acks": "1"})
    )
    assert service.wait_for_exit(STOP_S) == 2
    assert (
        "REO_DESTINATION_PRODUCER_OPTIONS_ACKS is not passed through (all, -1 are allowed): with"
        " less, an acknowledged record can be lost" in service.log
    )
    assert clusters.destination.partitions(topic) == 0
