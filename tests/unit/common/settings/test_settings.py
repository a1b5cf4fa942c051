"""Settings: where they come from, what is refused, and that everything wrong is said at once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import is_ours, load
from common.settings.refusal import Origin, Refusal
from common.settings.schema import BY_ENVIRONMENT, BY_NAME, SETTINGS

GOOD = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
}


def read_refusal(
    environment: dict[str, str],
    file: str | list[str] | None = None,
    arguments: dict[str, str] | None = None,
) -> str:
    """The message of the refusal."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(environment, file, arguments)
    return str(wrong.value)


def test_defaults_follow_from_the_three_required_settings() -> None:
    """Topic names, the group and the rest have defaults; only two addresses and a topic have to be
    given.
    """
    loaded = load(GOOD)
    assert (loaded.source_topic, loaded.destination_topic, loaded.intermediate_topic) == (
        "orders",
        "orders",
        "orders-proxy",
    )
    assert loaded.application == "reo-orders"
    assert loaded.instance
    assert loaded.stop_at_end is False
    assert {name: loaded.values[name] for name in ("metrics.port", "deduplicator.workers")} == {
        "metrics.port": 7081,
        "deduplicator.workers": 1,
    }


def test_what_a_file_would_have_can_be_given() -> None:
    """A program that uses reo as a library needs neither variables nor a file; errors are those of
    a file.
    """
    given = {
        "source": {"bootstrap_servers": "a:1", "consumer_options": {"client.rack": "x"}},
        "destination.bootstrap_servers": "b:1",
        "topics": {"orders": "copy"},
        "application": "mine",
        "stop_at_end": True,
    }
    loaded = load({}, given)
    assert loaded.stop_at_end
    assert dict(loaded.source.consumer_options) == {"client.rack": "x"}
    assert [route.destination_topic for route in loaded.build_routes()] == ["copy"]
    assert load({"REO_APPLICATION": "other"}, [given]).application == "other"
    with pytest.raises(SettingsInvalid, match=r"given settings: unknown setting source\.topc"):
        load({}, {**given, "source.topc": "orders"})


def test_every_wrong_setting_is_listed_at_once() -> None:
    """Missing, unknown, out of range, of the wrong kind, not among the choices: one message with
    all of them.
    """
    message = read_refusal(
        {
            "REO_SOURCE_TOPIC": "orders",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_METRICS_PRT": "1",
            "REO_METRICS_PORT": "65536",
            "REO_DEDUPLICATOR_WORKERS": "two",
            "REO_LOG_FORMAT": "xml",
            "REO_STOP_AT_END": "perhaps",
            "REO_SOURCE_START": "middle",
        }
    )
    assert message.startswith("7 settings are wrong:")
    for part in (
        "REO_SOURCE_BOOTSTRAP_SERVERS or KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS is missing",
        "REO_METRICS_PRT: unknown setting",
        "REO_METRICS_PORT: a whole number from 0 to 65535",
        "REO_DEDUPLICATOR_WORKERS: a whole number from 1 to 64",
        "REO_LOG_FORMAT: one of text, json",
        "REO_STOP_AT_END: true or false",
        "REO_SOURCE_START: earliest, latest, a timestamp",
    ):
        assert part in message


def test_each_error_has_the_users_own_spelling(tmp_path: Path) -> None:
    """One phase: a value that cannot be read stands beside values that contradict each other, each
    under the name that gave it.
    """
    file = tmp_path / "reo.toml"
    file.write_text('metrics.port = "many"\n[destination]\nsasl_username = "a"\n')
    given = {
        **GOOD,
        "REO_STOP_AT_END": "perhaps",
        "KAFKA_CLUSTERS_DESTINATION_TOPIC": "orders-proxy",
        "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY": "orders-proxy",
        "REO_SOURCE_BACKOFF_MIN_MS": "20000",
    }
    message = read_refusal(given, str(file))
    assert message.splitlines() == [
        "5 settings are wrong:",
        f"  {file}: metrics.port: a whole number from 0 to 65535 is expected, not 'many'",
        "  REO_STOP_AT_END: true or false is expected, not 'perhaps'",
        (
            "  KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY and KAFKA_CLUSTERS_DESTINATION_TOPIC are both"
            " 'orders-proxy'"
        ),
        "  destination.sasl_username would not be used: destination.security_protocol is PLAINTEXT",
        "  REO_SOURCE_BACKOFF_MIN_MS is more than source.backoff_max_ms",
    ]
    assert "--topic: 'a b' is not a legal topic name" in read_refusal(
        {**GOOD, "REO_APPLICATION": "x"}, None, {"topics": "a b", "source.topic": ""}
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"REO_SETTINGS_FILE": "/nowhere.toml"}, "/nowhere.toml: the settings file does not exist"),
        (
            {
                "REO_SOURCE_SECURITY_PROTOCOL": "SASL_SSL",
                "REO_SOURCE_SASL_MECHANISM": "PLAIN",
                "REO_SOURCE_SASL_USERNAME": "a",
                "REO_SOURCE_SASL_PASSWORD_FILE": "/nowhere",
            },
            "REO_SOURCE_SASL_PASSWORD_FILE: /nowhere cannot be read",
        ),
        (
            {"REO_SOURCE_SECURITY_PROTOCOL": "SSL", "REO_SOURCE_SSL_CA_FILE": "/nowhere"},
            "REO_SOURCE_SSL_CA_FILE: /nowhere cannot be read",
        ),
        ({"REO_SOURCE_TOPIC": "a b"}, "REO_SOURCE_TOPIC: 'a b' is not a legal topic name"),
        (
            {"REO_SOURCE_MODE": "fail", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"},
            "REO_SOURCE_MODE: one of single, failover is expected",
        ),
    ],
)
def test_one_mistake_is_one_error(changes: dict[str, str], name: str) -> None:
    """What only follows from it is not listed: of a file that is missing, not all that may be in
    it.
    """
    first, *others = read_refusal(
        (GOOD if "REO_SETTINGS_FILE" not in changes else {}) | changes
    ).splitlines()
    assert first == "1 setting is wrong:"
    assert [other[2 : 2 + len(name)] for other in others] == [name]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """A mistyped setting must not be ignored silently; the message says which one was probably
    meant.
    """
    assert "REO_SOURCE_TOPICS: unknown setting (did you mean REO_SOURCE_TOPIC?)" in read_refusal(
        GOOD | {"REO_SOURCE_TOPICS": "x"}
    )


def test_kafka_reos_names_are_taken() -> None:
    """A configuration of kafka-reo runs as it is."""
    loaded = load(
        {
            "APPLICATION_NAME": "copy",
            "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "KAFKA_CLUSTERS_SOURCE_TOPIC": "orders",
            "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "KAFKA_CLUSTERS_DESTINATION_TOPIC": "orders2",
            "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY": "between",
            "KAFKA_CONFIG_CONSUMER_AUTO_RESET": "latest",
            "KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES": "1048576",
            "STREAMS_REPLICATION_FACTOR": "3",
            "STREAMS_NUM_STREAM_THREADS": "3",
            "KAFKA_CONFIG_PRODUCER_LINGER_MS": "100",
            "KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE": "gzip",
            "KAFKA_CONFIG_PRODUCER_ACKS": "-1",
            "KAFKA_CONFIG_PRODUCER_DELIVERY_TIMEOUT_MS": "604800000",
        }
    )
    assert (loaded.application, loaded.destination_topic, loaded.intermediate_topic) == (
        "copy",
        "orders2",
        "between",
    )
    assert loaded.source.start == "latest"
    assert (loaded.deduplicator.workers, loaded.topics.replication_factor) == (3, 3)
    assert loaded.producer.compression_type == "gzip"


@pytest.mark.parametrize("text", ["2024", "1_000", "0x10", "true", "1.5", "1e3", "00", "null"])
def test_texts_stay_as_they_are(text: str) -> None:
    """Topic 2024 is a name, not a number; dynaconf alone would read the environment as TOML."""
    loaded = load(GOOD | {"REO_SOURCE_TOPIC": text, "REO_APPLICATION": text})
    assert (loaded.source_topic, loaded.application) == (text, text)


@pytest.mark.parametrize(
    "text", ["1_000", "1e3", "0x10", " ", "", "1.0", "+1", "٣", "9999999999999"]
)
def test_a_number_is_digits_only(text: str) -> None:
    """What Python or TOML would read as a number in another notation is not one here."""
    assert "REO_DEDUPLICATOR_TRANSACTION_RECORDS: a whole number" in read_refusal(
        GOOD | {"REO_DEDUPLICATOR_TRANSACTION_RECORDS": text}
    )


def test_variables_that_kubernetes_injects_pass() -> None:
    """A Service called `reo` or `kafka-clusters` in the namespace must not stop the copy; our own
    names are still checked.
    """
    injected = {
        "REO_SERVICE_HOST": "10.0.0.1",
        "REO_SERVICE_PORT": "7081",
        "REO_SERVICE_PORT_METRICS": "7081",
        "REO_PORT": "tcp://10.0.0.1:7081",
        "REO_PORT_7081_TCP": "tcp://10.0.0.1:7081",
        "REO_PORT_7081_TCP_ADDR": "10.0.0.1",
        "REO_PORT_7081_TCP_PROTO": "tcp",
        "KAFKA_CLUSTERS_SERVICE_HOST": "10.0.0.2",
        "KAFKA_CLUSTERS_PORT_9092_TCP_PORT": "9092",
        "KAFKA_PORT": "tcp://10.0.0.3:9092",
    }
    assert load(GOOD | injected).source_topic == "orders"
    assert "KAFKA_CONFIG_PRODUCER_BATCH: unknown" in read_refusal(
        GOOD | injected | {"KAFKA_CONFIG_PRODUCER_BATCH": "1"}
    )


def test_other_programs_variables_are_not_looked_at() -> None:
    """Only what has our prefixes can be a mistyped setting of ours."""
    assert (
        load(
            GOOD
            | {
                "PATH": "/bin",
                "SPARK_HOME": "/x",
                "KAFKA_HEAP_OPTS": "-Xmx1g",
                "REO_JARS": "/jars",
            }
        ).source_topic
        == "orders"
    )


def test_a_child_process_gets_exactly_these_settings() -> None:
    """What the supervisor hands down reads back as the same values, whatever names the parent was
    given them by.
    """
    given = {
        "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "a:1",
        "KAFKA_CLUSTERS_SOURCE_TOPIC": "2024",
        "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
        "REO_STOP_AT_END": "yes",
        "REO_METRICS_PORT": "0",
    }
    loaded = load(given)
    assert load(loaded.build_environment()).values == loaded.values
    assert all(is_ours(name) for name in given)
    assert not is_ours("PATH")


def test_settings_are_frozen() -> None:
    """Neither a section, nor what follows from it, nor raw options can be changed."""
    loaded = load(GOOD | {"REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "a"})
    for changed, name in ((loaded, "application"), (loaded, "rules"), (loaded.source, "topic")):
        with pytest.raises(FrozenInstanceError):
            setattr(changed, name, "other")
    for options in (loaded.source.consumer_options, loaded.values, loaded.given_by):
        with pytest.raises(TypeError, match="does not support item assignment"):
            options["client.rack"] = "b"


def test_a_refusal_has_names_and_a_text() -> None:
    """In the order of the text, spelled as their origin has them; values are never taken for names
    or for places of names.
    """
    refusal = Refusal("{} and {topics}: {given} of {}", "log.level", "log.format", given="{topics}")
    assert refusal.names == ["log.level", "topics", "log.format"]
    spelled = refusal.spell({"topics": Origin("--topic")})
    assert spelled == "REO_LOG_LEVEL and --topic: {topics} of REO_LOG_FORMAT"
    in_file = {"topics": Origin("[topics]", "reo.toml")}
    assert refusal.spell(in_file) == "log.level and [topics]: {topics} of log.format"


def test_no_name_gives_two_settings() -> None:
    """Every environment name, alias or own, leads to one setting."""
    names = [name for setting in SETTINGS for name in setting.environment]
    assert len(names) == len(set(names)) == len(BY_ENVIRONMENT)
    assert len(BY_NAME) == len(SETTINGS)


def test_every_default_is_a_value_that_the_setting_would_take() -> None:
    """A default out of its own range would be an error only for those who write it down."""
    for setting in SETTINGS:
        if not setting.required and setting.default not in (None, ""):
            written = GOOD | {setting.environment[0]: str(setting.default)}
            assert load(written).values[setting.name] == setting.default


def test_what_is_nearly_right_is_taken_or_said_exactly() -> None:
    """A choice in lower case; Kubernetes' variable of a Service whose name makes it a setting's; a
    line end behind a password; a line end between topics, which is one error.
    """
    loaded = load(
        GOOD
        | {
            "REO_LOG_LEVEL": "info",
            "REO_SOURCE_SECURITY_PROTOCOL": "ssl",
            "REO_METRICS_PORT": "tcp://10.0.0.1:7081",
        }
    )
    assert loaded.log.level == "INFO"
    assert loaded.source_cluster.security.security_protocol == "SSL"
    assert loaded.metrics.port == 7081
    sasl = {
        "REO_SOURCE_SECURITY_PROTOCOL": "SASL_SSL",
        "REO_SOURCE_SASL_MECHANISM": "PLAIN",
        "REO_SOURCE_SASL_USERNAME": "user",
    }
    message = read_refusal(GOOD | sasl | {"REO_SOURCE_SASL_PASSWORD": "secret\n"})
    assert message.endswith("\n  REO_SOURCE_SASL_PASSWORD: it ends with a line end: remove that")
    message = read_refusal(GOOD | sasl | {"REO_SOURCE_SASL_MECHANISM": "GSSAPI"})
    assert "one of PLAIN, SCRAM-SHA-256" in message
    several = {name: text for name, text in GOOD.items() if name != "REO_SOURCE_TOPIC"}
    message = read_refusal(several | {"REO_TOPICS": "a\nb", "REO_APPLICATION": "x"})
    assert message.startswith("1 setting is wrong:\n  REO_TOPICS: printable characters")
