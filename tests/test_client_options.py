"""Raw client options: each reaches its client, on real brokers; those on which an exact copy stands are refused with the reason; secrets are shown nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from common import client_options, kafka_clients, spark_options
from common.client_options import ALLOW_UNSAFE, GUARDED
from common.errors import SettingsInvalid
from common.kafka_clients import LossCounter
from common.routes import Place
from common.settings import Settings, load
from common.settings_spelling import spell
from reo.demo.broker import Broker
from replicator import intermediate, session, source
from tests.conftest import Start
from tests.kafka import ROOT, Cluster, Clusters, make_records
from tests.test_bad_input import STOP_S, stopped
from tests.test_settings import GOOD

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The lowest three bits of a batch's attributes (Kafka's documentation, "Message Format")."""
ALLOWED = {**GOOD, "REO_ALLOW_UNSAFE_OPTIONS": "true"}
MUST_BE_GUARDED = {
    "source.consumer_options": "bootstrap.servers security.protocol check.crcs isolation.level group.id auto.offset.reset enable.auto.commit failondataloss "
                               "minpartitions maxrecordsperpartition startingoffsets assign",
    "intermediate.producer_options": "bootstrap.servers security.protocol acks enable.idempotence max.in.flight.requests.per.connection delivery.timeout.ms "
                                     "transactional.id",
    "intermediate.consumer_options": "bootstrap.servers security.protocol isolation.level group.id group.instance.id auto.offset.reset enable.auto.commit "
                                     "enable.auto.offset.store check.crcs",
    "destination.producer_options": "bootstrap.servers security.protocol transactional.id transaction.timeout.ms enable.idempotence acks request.required.acks "
                                    "max.in.flight max.in.flight.requests.per.connection log_level message.timeout.ms",
    "replicator.spark_options": "spark.master spark.speculation spark.task.cpus spark.default.parallelism spark.dynamicAllocation.enabled spark.jars "
                                "spark.sql.extensions spark.redaction.regex spark.sql.ansi.enabled",
}
EVERY = [(setting, option) for setting, guards in GUARDED.items() for option in guards]


def refusal(environment: dict[str, str], file: str | None = None) -> str:
    """What is said to settings that are refused."""
    with pytest.raises(SettingsInvalid) as refused:
        load(environment, file)
    return str(refused.value)


def given(setting: str, options: dict[str, str]) -> dict[str, str]:
    """The variables of a service that give these options."""
    return {client_options.get_variable(setting, option).removeprefix("REO_"): value for option, value in options.items()}


@pytest.mark.parametrize(("setting", "option"), EVERY)
def test_a_guarded_option_is_refused_with_its_reason(setting: str, option: str) -> None:
    """A value of somebody's own is refused; a harmless one is not; with the switch it is passed and warned of, unless it cannot work at all."""
    guard, variable = GUARDED[setting][option], client_options.get_variable(setting, option)
    message = refusal(GOOD | {variable: "what-nobody-needs"})
    assert f"{variable} is not passed through" in message
    assert spell(guard.reason, {}, uses_files=False) in message
    assert "what-nobody-needs" not in message, "it may be a secret"
    for value in guard.harmless.split("|") if guard.harmless and "[" not in guard.harmless else []:
        loaded = load(GOOD | {variable: value})
        assert loaded.options(setting) == {option: value}
        assert loaded.unsafe() == []
    if guard.always:
        assert ALLOW_UNSAFE not in message
        assert "is not passed through" in refusal(ALLOWED | {variable: "what-nobody-needs"})
    else:
        assert "REO_ALLOW_UNSAFE_OPTIONS=true" in message
        loaded = load(ALLOWED | {variable: "what-nobody-needs"})
        assert loaded.options(setting) == {option: "what-nobody-needs"}
        said = loaded.unsafe()
        assert len(said) == 1
        assert all(words in said[0] for words in ("UNSAFE", setting, option, guard.reason))


def test_in_flight_requests_may_be_fewer_and_not_more() -> None:
    """Five is the most with which idempotence keeps the order; fewer is slower, and no harm."""
    for setting in ("intermediate.producer_options", "destination.producer_options"):
        variable = client_options.get_variable(setting, "max.in.flight.requests.per.connection")
        assert load(GOOD | {variable: "1"}).unsafe() == []
        assert "does not keep the order" in refusal(GOOD | {variable: "6"})
        assert "does not keep the order" in refusal(GOOD | {variable: "15"})


def test_what_an_exact_copy_stands_on_is_guarded() -> None:
    """The names that must never fall out of the table."""
    for setting, options in MUST_BE_GUARDED.items():
        assert [option for option in options.split() if option not in GUARDED[setting]] == []


def own_options(monkeypatch: pytest.MonkeyPatch, loaded: Settings) -> dict[str, dict[str, Any]]:
    """What each of the four clients is given, and Spark."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(kafka_clients, "_factories", kafka_clients.ClientFactories(*[cast(Any, made.append)] * 3))
    kafka_clients.stage_two_consumer(loaded, 0)
    kafka_clients.transactional_producer(loaded, 0, "a", 1_000_000, LossCounter("x"))
    java = [{name.removeprefix("kafka.").lower(): value for name, value in options.items()}
            for options in (source.options(loaded, {Place("orders", 0): 0}), intermediate.options(loaded, 1_048_588))]
    return dict(zip(GUARDED, [*java, *made, session.build_configuration(loaded, 1)], strict=True))


def test_the_guards_agree_with_what_reo_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reo gives a client is harmless by the guards' own measure; and what is given raw stands in its place."""
    for setting, options in own_options(monkeypatch, load(GOOD)).items():
        own = {option: str(value).lower() for option, value in options.items() if option in GUARDED[setting] and GUARDED[setting][option].harmless}
        assert own, setting
        assert [option for option, value in own.items() if not GUARDED[setting][option].allows(value)] == []
    names = {setting: "spark.app.name" if setting == spark_options.SETTING else "client.id" for setting in GUARDED}
    raw = {client_options.get_variable(setting, option): f"mine in {setting}" for setting, option in names.items()}
    assert {setting: options[names[setting]] for setting, options in own_options(monkeypatch, load(GOOD | raw)).items()} == \
        {setting: f"mine in {setting}" for setting in GUARDED}


def test_options_of_spark_itself_are_not_kafkas() -> None:
    """A name that Spark's source has goes to Spark as it is, every other one to Kafka's client."""
    assert client_options.to_spark_options({"fetchoffset.numretries": "5", "client.rack": "a"}) == {"fetchoffset.numretries": "5", "kafka.client.rack": "a"}


FORMS = {
    "reo.toml": '[source.consumer_options]\nclient.rack = "a"\n"fetch.max.bytes" = 7\ncheck.crcs = true\nfailOnDataLoss = "true"\n',
    "reo.yaml": "source:\n  consumer_options:\n    client.rack: a\n    fetch.max.bytes: 7\n    check.crcs: true\n    failOnDataLoss: 'true'\n",
    "reo.json": '{"source": {"consumer_options": {"client.rack": "a", "fetch": {"max": {"bytes": 7}}, "check.crcs": true, "failOnDataLoss": "true"}}}',
    "reo.ini": "[source.consumer_options]\nclient.rack = a\nfetch.max.bytes = 7\ncheck.crcs = true\nfailOnDataLoss = true\n",
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_options_in_a_file(tmp_path: Path, name: str) -> None:
    """Every form, with dots in names or tables in tables; the environment replaces one option and leaves the others; a child is handed all of them."""
    file = tmp_path / name
    file.write_text(FORMS[name])
    expected = {"client.rack": "a", "fetch.max.bytes": "7", "check.crcs": "true", "failondataloss": "true"}
    assert load(GOOD, str(file)).source.consumer_options == expected
    loaded = load(GOOD | {"REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "b"}, str(file))
    assert loaded.source.consumer_options == expected | {"client.rack": "b"}
    assert load(loaded.as_environment()).values == loaded.values


@pytest.mark.parametrize("option", ["client.rack", "log_level", "a.b_c.d", "x"])
def test_a_variable_can_carry_the_name(option: str) -> None:
    """A dot is an underscore, an underscore two."""
    for setting in GUARDED:
        assert client_options.parse_variable(client_options.get_variable(setting, option)) == (setting, option)


@pytest.mark.parametrize(("file", "part"), [
    ('[source]\nconsumer_options = "client.rack=a"\n', "a table of options is expected"),
    ("[source.consumer_options]\nclient.rack = [1]\n", "a text, a number, true or false is expected"),
    ('[source.consumer_options]\nclient.rack = "a\\u0000b"\n', "printable characters are expected"),
    ('[source.consumer_options]\n"kafka.client.rack" = "a"\n', "without `kafka.` before them"),
    ('[source.consumer_options]\n"Client Rack" = "a"\n', "is not the name of an option"),
    ('[source.consumer_option]\nclient.rack = "a"\n', "unknown setting source.consumer_option (did you mean source.consumer_options?)"),
])
def test_what_is_no_option(tmp_path: Path, file: str, part: str) -> None:
    """One message, before any client is made."""
    (tmp_path / "reo.toml").write_text(file)
    assert part in refusal(GOOD, str(tmp_path / "reo.toml"))


def codecs(folder: Path) -> set[int]:
    """The codecs of all batches of a partition that are not markers, from its files (message format v2)."""
    found = set()
    for file in sorted(folder.glob("*.log")):
        content, place = file.read_bytes(), 0
        while place + 61 <= len(content) and (length := int.from_bytes(content[place + 8:place + 12], "big")) > 0:
            attributes = int.from_bytes(content[place + 21:place + 23], "big")
            if not attributes & 0x20:
                found.add(attributes & 7)
            place += 12 + length
    return found


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that logs each request with its client's id."""
    broker = Broker(tmp_path_factory.mktemp("listening") / "broker", ROOT / "jars" / "broker",
                    java_options=("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",))
    try:
        yield Cluster(broker.start().wait())
    finally:
        broker.kill()


def fetches(broker: Broker) -> list[dict[str, Any]]:
    """The fetches that a broker has answered: request and header."""
    lines = (broker.folder / "broker.log").read_text(errors="replace").splitlines()
    found = [json.loads(line.partition("Completed request:")[2]) for line in lines if "Completed request:" in line and '"requestApiKeyName":"FETCH"' in line]
    return [{**entry["request"], "clientId": entry["requestHeader"]["clientId"]} for entry in found]


def test_options_reach_their_clients(clusters: Clusters, listening: Cluster, topic: str, start: Start) -> None:
    """The source's broker sees rack, name and fetch size of stage one's consumer; the destination's broker stores what each producer compressed, and
    knows stage two's consumer by the name it was given. A name that Kafka's Java client does not know is warned of, with the nearest.
    """
    both = Clusters(listening, clusters.destination)
    listening.create(topic, 2)
    listening.write(topic, make_records(range(3000), 2))
    service = start(topic, source_bootstrap_servers=listening.address, **given(
        "source.consumer_options", {"client.id": "stage-one-reads", "client.rack": "rack-7", "fetch.max.bytes": "1234567", "fetch.max.byte": "1"}), **given(
        "intermediate.producer_options", {"compression.type": "lz4"}), **given(
        "intermediate.consumer_options", {"client.id": "stage-two-reads"}), **given(
        "destination.producer_options", {"compression.type": "zstd"}))
    both.wait_for_copy(topic, 3000)
    members = clusters.destination.admin.describe_consumer_groups([f"reo-{topic}"])[f"reo-{topic}"].result().members
    assert [member.client_id for member in members] == ["stage-two-reads"]
    seen = [fetch for fetch in fetches(listening.broker) if fetch["clientId"] == "stage-one-reads"]
    assert seen
    assert {(fetch["rackId"], fetch["maxBytes"]) for fetch in seen} == {("rack-7", 1234567)}
    data = clusters.destination.broker.folder / "data"
    assert codecs(data / f"{topic}-proxy-0") == {CODECS["lz4"]}
    assert codecs(data / f"{topic}-0") == {CODECS["zstd"]}
    assert "source.consumer_options: fetch.max.byte is no option of Kafka's client (did you mean fetch.max.bytes?)" in service.log
    service.stop()
    assert both.differences(topic) == []


def test_the_switch_is_loud_and_secrets_are_silent(clusters: Clusters, topic: str, start: Start) -> None:
    """With the switch an option that was refused is passed, and every process says so; secret options are in no log, at the highest level."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(100), 1))
    secret = "s3cr3t-of-an-0ption"
    service = start(topic, log_level="DEBUG", allow_unsafe_options="true", **given(
        "intermediate.consumer_options", {"check.crcs": "false", "ssl.key.password": secret}), **given(
        "source.consumer_options", {"ssl.key.password": secret}), **given(
        "intermediate.producer_options", {"ssl.truststore.password": secret}), **given(
        "destination.producer_options", {"ssl.key.password": secret, "debug": "broker"}))
    clusters.wait_for_copy(topic, 100)
    warned = [line for line in service.log.splitlines() if "UNSAFE: intermediate.consumer_options sets check.crcs" in line]
    assert {re.split(r"\s+", line)[2] for line in warned} == {"reo:", "replicator:", "deduplicator-0:"}
    assert all(" WARNING " in line and "damaged records would be copied" in line for line in warned)
    service.stop()
    assert secret not in service.log


@pytest.mark.parametrize(("setting", "options", "words"), [
    ("destination.producer_options", {"linger.ms": "-1"}, ("destination.producer_options (linger.ms)", "outside allowed range")),
    ("intermediate.consumer_options", {"no.such.option": "1"}, ("intermediate.consumer_options", "No such configuration property")),
    ("intermediate.consumer_options", {"security.protocol": "ssl", "ssl.key.pem": "s3cr3t"}, ("intermediate.consumer_options",)),
])
def test_what_a_client_does_not_take_ends_the_service(
        clusters: Clusters, topic: str, start: Start, setting: str, options: dict[str, str], words: tuple[str, ...]) -> None:
    """One error that names the table, exit code 2, nothing tried again and again; a value that may be secret is not in it."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    more = given(setting, options) | {"allow_unsafe_options": "true"}
    service = start(topic, "deduplicator", **more)
    stopped(service, 2, "SettingsInvalid", *words)
    assert "s3cr3t" not in service.log


def test_what_kafkas_java_client_does_not_take_ends_the_service(clusters: Clusters, topic: str, start: Start) -> None:
    """It says so when the first record is read: the run is not begun again and again."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    service = start(topic, **given("source.consumer_options", {"fetch.max.bytes": "many"}))
    assert service.wait_for_exit(STOP_S) == 2
    refused = [line for line in service.errors if "SettingsInvalid" in line]
    assert len(refused) == 1
    assert "the value of fetch.max.bytes: Not a number of type INT: check source.consumer_options" in refused[0]


def test_a_harmful_option_ends_the_start(clusters: Clusters, topic: str, start: Start) -> None:
    """Before any client is made: nothing is created."""
    clusters.source.create(topic, 1)
    service = start(topic, **given("destination.producer_options", {"acks": "1"}))
    assert service.wait_for_exit(STOP_S) == 2
    assert "REO_DESTINATION_PRODUCER_OPTIONS_ACKS is not passed through (all, -1 are allowed): with less, an acknowledged record can be lost" in service.log
    assert clusters.destination.partitions(topic) == 0
