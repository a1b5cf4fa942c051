"""Settings: where they come from, what is refused, and that everything wrong is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import is_ours, load
from common.settings.table import BY_ENVIRONMENT, BY_NAME, SETTINGS

GOOD = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
}


def refused(
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


def test_every_wrong_setting_is_listed_at_once() -> None:
    """Missing, unknown, out of range, of the wrong kind, not among the choices: one message with
    all of them.
    """
    message = refused(
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
    assert message.startswith("7 setting(s) are wrong:")
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
    message = refused(given, str(file))
    assert message.splitlines() == [
        "5 setting(s) are wrong:",
        f"  {file}: metrics.port: a whole number from 0 to 65535 is expected, not 'many'",
        "  REO_STOP_AT_END: true or false is expected, not 'perhaps'",
        (
            "  KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY and KAFKA_CLUSTERS_DESTINATION_TOPIC are both"
            " 'orders-proxy'"
        ),
        "  destination.sasl_username would not be used: destination.security_protocol is PLAINTEXT",
        "  REO_SOURCE_BACKOFF_MIN_MS is more than source.backoff_max_ms",
    ]
    assert "--topic: 'a b' is not a legal topic name" in refused(
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
    first, *others = refused(
        (GOOD if "REO_SETTINGS_FILE" not in changes else {}) | changes
    ).splitlines()
    assert first == "1 setting(s) are wrong:"
    assert [other[2 : 2 + len(name)] for other in others] == [name]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """A mistyped setting must not be ignored silently; the message says which one was probably
    meant.
    """
    assert "REO_SOURCE_TOPICS: unknown setting (did you mean REO_SOURCE_TOPIC?)" in refused(
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
    assert "REO_DEDUPLICATOR_TRANSACTION_RECORDS: a whole number" in refused(
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
    assert "KAFKA_CONFIG_PRODUCER_BATCH: unknown" in refused(
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


def test_two_names_of_one_setting_may_agree_and_must_not_differ() -> None:
    """Which of two different values was meant cannot be known; two equal ones say the same."""
    alias = "KAFKA_CLUSTERS_SOURCE_TOPIC"
    assert load(GOOD | {alias: "orders"}).source_topic == "orders"
    message = refused(GOOD | {alias: "other"})
    assert alias in message
    assert "contradict each other" in message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"REO_INTERMEDIATE_TOPIC": "orders"},
            "REO_INTERMEDIATE_TOPIC and REO_DESTINATION_TOPIC are both 'orders'",
        ),
        (
            {
                "REO_DESTINATION_BOOTSTRAP_SERVERS": "a:1",
                "REO_INTERMEDIATE_TOPIC": "orders",
                "REO_DESTINATION_TOPIC": "copy",
            },
            "REO_INTERMEDIATE_TOPIC and REO_SOURCE_TOPIC are both 'orders'",
        ),
        ({"REO_SOURCE_TOPIC": "with space"}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": ".."}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": "x" * 250}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": "x" * 249}, "REO_INTERMEDIATE_TOPIC"),
        (
            {"REO_DEDUPLICATOR_SESSION_TIMEOUT_MS": "20001"},
            "is longer than REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS",
        ),
        ({"REO_PRODUCER_ACKS": "1"}, "one of all, -1 is expected"),
        ({"REO_SOURCE_TOPIC": ""}, "REO_SOURCE_TOPIC or KAFKA_CLUSTERS_SOURCE_TOPIC is missing"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": ""}, "must not be empty"),
        *(
            (
                {"REO_REPLICATOR_MASTER": master},
                "REO_REPLICATOR_MASTER: spark://host:port or k8s://https://host:port is expected",
            )
            for master in ("yarn", "local[4]", "spark://host", "k8s://host:6443", "k8s://")
        ),
        (
            {"REO_REPLICATOR_MASTER": "k8s://https://host:6443"},
            "replicator.spark_options: spark.kubernetes.container.image is missing",
        ),
        (
            {"REO_FILTER_FUNCTION": "no_such_thing"},
            "REO_FILTER_FUNCTION: module:function is expected",
        ),
        (
            {"REO_PROVENANCE_HEADER": "via", "REO_SOURCE_MODE": "failover"},
            "REO_PROVENANCE_HEADER and REO_SOURCE_MODE=failover",
        ),
        ({"REO_PROVENANCE_HEADER": "__origin"}, "REO_PROVENANCE_HEADER may not begin with __"),
        ({"REO_REPLICATOR_MEMORY_MB": "511"}, "REO_REPLICATOR_MEMORY_MB: a whole number from 512"),
        ({"REO_FILTER_ON_ERROR": "park"}, "there is no REO_FILTER_FUNCTION that could fail"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, str], part: str) -> None:
    """Values that are right one by one and wrong together, and names that no broker would take."""
    assert part in refused(GOOD | changes)


def test_the_same_topic_on_two_clusters_is_no_contradiction() -> None:
    """The ordinary case: only names on the same cluster can collide. (The source cluster may well
    have a topic like ours.)
    """
    assert (
        load(
            GOOD | {"REO_DESTINATION_TOPIC": "copy", "REO_INTERMEDIATE_TOPIC": "orders"}
        ).intermediate_topic
        == "orders"
    )


def test_a_cycle_by_another_spelling_is_left_to_the_clusters() -> None:
    """Whether two addresses are one cluster only the clusters know: `topic_creation.prepare` asks
    them; the settings pass.
    """
    assert load(GOOD | {"REO_DESTINATION_BOOTSTRAP_SERVERS": "a:1"}).destination_topic == "orders"


FORMS = {
    "reo.toml": (
        'connect_timeout_s = 5\n[source]\nbootstrap_servers = "f:1"\ntopic ='
        ' "2024"\n[destination]\nbootstrap_servers = "g:1"\n'
    ),
    "reo.yaml": (
        'connect_timeout_s: 5\nsource:\n  bootstrap_servers: "f:1"\n  topic: "2024"\ndestination:\n'
        '  bootstrap_servers: "g:1"\n'
    ),
    "reo.json": (
        '{"connect_timeout_s": 5, "source": {"bootstrap_servers": "f:1", "topic": "2024"},'
        ' "destination": {"bootstrap_servers": "g:1"}}'
    ),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_settings_file_is_read(tmp_path: Path, name: str) -> None:
    """Every form that the documentation names; a topic in quotes stays a text."""
    file = tmp_path / name
    file.write_text(FORMS[name])
    loaded = load({}, str(file))
    assert (
        loaded.source_cluster.bootstrap_servers,
        loaded.source_topic,
        loaded.connect_timeout_s,
    ) == ("f:1", "2024", 5)


def test_later_sources_win(tmp_path: Path) -> None:
    """File, then environment, then command line."""
    file = tmp_path / "reo.toml"
    file.write_text(FORMS["reo.toml"])
    environment = {
        "REO_SETTINGS_FILE": str(file),
        "REO_SOURCE_TOPIC": "from-environment",
        "REO_DESTINATION_TOPIC": "from-environment",
    }
    loaded = load(environment, None, {"destination.topic": "from-arguments"})
    assert loaded.source_cluster.bootstrap_servers == "f:1"
    assert (loaded.source_topic, loaded.destination_topic) == ("from-environment", "from-arguments")


def test_of_several_files_the_later_one_wins(tmp_path: Path) -> None:
    """Name by name, options and topics too, whether they are named by arguments or by the
    variable.
    """
    files = [tmp_path / name for name in ("one.toml", "two.yaml")]
    files[0].write_text(
        FORMS["reo.toml"] + '[source.consumer_options]\nclient.rack = "a"\nfetch.max.bytes = 7\n'
    )
    files[1].write_text('source:\n  topic: "other"\n  consumer_options:\n    client.rack: b\n')
    for environment, arguments in (
        ({"REO_SETTINGS_FILE": f"{files[0]}:{files[1]}"}, ()),
        ({}, list(map(str, files))),
    ):
        loaded = load(environment, arguments)
        assert (loaded.source_topic, loaded.source_cluster.bootstrap_servers) == ("other", "f:1")
        assert loaded.source.consumer_options == {"client.rack": "b", "fetch.max.bytes": "7"}
        assert loaded.given_by["source.topic"] == f"{files[1]}: source.topic"
    first, second = refused({}, [str(files[0]), str(tmp_path / "three.toml")]).splitlines()
    assert first == "1 setting(s) are wrong:"
    assert second.startswith(
        f"  {tmp_path / 'three.toml'}: the settings file does not exist or cannot be read"
    )


def test_topics_of_several_files_are_all_copied(tmp_path: Path) -> None:
    """Name by name, as all else: a later file changes the destination of one topic and adds
    another.
    """
    files = [tmp_path / name for name in ("one.toml", "two.toml")]
    files[0].write_text('application = "a"\n[topics]\norders = "orders"\ninvoices = "invoices"\n')
    files[1].write_text('[topics]\ninvoices = "copy"\nlogs = "all:3"\n')
    several = {name: value for name, value in GOOD.items() if name != "REO_SOURCE_TOPIC"}
    assert load(several, list(map(str, files))).topics_ == "orders=orders,invoices=copy,logs=all:3"


def test_wrong_files_are_refused_together_with_what_else_is_wrong(tmp_path: Path) -> None:
    """A file that is not there, one that cannot be read, one with a name that nobody knows; the
    environment's errors stand beside.
    """
    assert "the settings file does not exist" in refused(
        GOOD | {"REO_SETTINGS_FILE": str(tmp_path / "none.toml")}
    )
    broken = tmp_path / "broken.toml"
    broken.write_text("[source\n")
    assert "cannot be read" in refused(GOOD, str(broken))
    unknown = tmp_path / "unknown.toml"
    unknown.write_text('[source]\ntopics = "x"\n')
    message = refused(GOOD | {"REO_METRICS_PORT": "x"}, str(unknown))
    assert "unknown setting source.topics (did you mean source.topic?)" in message
    assert "REO_METRICS_PORT" in message


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
    assert load(loaded.as_environment()).values == loaded.values
    assert all(is_ours(name) for name in given)
    assert not is_ours("PATH")


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
