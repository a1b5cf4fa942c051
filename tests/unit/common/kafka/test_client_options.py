"""Raw client options: those on which an exact copy stands are refused with the reason. Real
clients: `tests/e2e/test_client_options_service.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from common.errors import SettingsInvalid
from common.kafka import clients as kafka_clients
from common.kafka.clients import LossCounter
from common.routes import TopicPartition
from common.settings import Settings, client_options, load
from common.settings.client_options import ALLOW_UNSAFE
from common.settings.guarded_options import GUARDED, SPARK_OPTIONS_TABLE
from common.settings.refusal import Refusal
from replicator import sink_options, source
from replicator.spark import session
from tests.unit.common.settings.test_settings import GOOD

ALLOWED = {**GOOD, "REO_ALLOW_UNSAFE_OPTIONS": "true"}
MUST_BE_GUARDED = {
    "source.consumer_options": (
        "bootstrap.servers security.protocol check.crcs isolation.level group.id auto.offset.reset"
        " enable.auto.commit failondataloss minpartitions maxrecordsperpartition startingoffsets"
        " assign"
    ),
    "intermediate.producer_options": (
        "bootstrap.servers security.protocol acks enable.idempotence"
        " max.in.flight.requests.per.connection delivery.timeout.ms transactional.id"
    ),
    "intermediate.consumer_options": (
        "bootstrap.servers security.protocol isolation.level group.id group.instance.id"
        " auto.offset.reset enable.auto.commit enable.auto.offset.store check.crcs"
    ),
    "destination.producer_options": (
        "bootstrap.servers security.protocol transactional.id transaction.timeout.ms"
        " enable.idempotence acks request.required.acks max.in.flight"
        " max.in.flight.requests.per.connection log_level debug message.timeout.ms"
    ),
    "replicator.spark_options": (
        "spark.master spark.speculation spark.task.cpus spark.default.parallelism"
        " spark.dynamicAllocation.enabled spark.jars spark.sql.extensions spark.redaction.regex"
        " spark.sql.ansi.enabled"
    ),
}
EVERY = [(setting, option) for setting, guards in GUARDED.items() for option in guards]


def read_refusal(environment: dict[str, str], file: str | None = None) -> str:
    """What is said to settings that are refused."""
    with pytest.raises(SettingsInvalid) as refused:
        load(environment, file)
    return str(refused.value)


def build_options_environment(setting: str, options: dict[str, str]) -> dict[str, str]:
    """The variables of a service that give these options."""
    return {
        client_options.get_variable(setting, option).removeprefix("REO_"): value
        for option, value in options.items()
    }


@pytest.mark.parametrize(("setting", "option"), EVERY)
def test_a_guarded_option_is_refused_with_its_reason(setting: str, option: str) -> None:
    """A value of somebody's own is refused; a harmless one is not; with the switch it is passed and
    warned of, unless it cannot work at all.
    """
    guard, variable = GUARDED[setting][option], client_options.get_variable(setting, option)
    message = read_refusal(GOOD | {variable: "what-nobody-needs"})
    assert f"{variable} is not passed through" in message
    assert Refusal(guard.text).spell({}) in message
    assert "what-nobody-needs" not in message, "it may be a secret"
    for value in guard.harmless.split("|") if guard.harmless and "[" not in guard.harmless else []:
        loaded = load(GOOD | {variable: value})
        assert loaded.get_options(setting) == {option: value}
        assert loaded.list_warnings() == []
    if guard.always:
        assert ALLOW_UNSAFE not in message
        assert "is not passed through" in read_refusal(ALLOWED | {variable: "what-nobody-needs"})
    else:
        assert "REO_ALLOW_UNSAFE_OPTIONS=true" in message
        loaded = load(ALLOWED | {variable: "what-nobody-needs"})
        assert loaded.get_options(setting) == {option: "what-nobody-needs"}
        said = loaded.list_warnings()
        assert len(said) == 1
        assert all(words in said[0] for words in ("UNSAFE", setting, option, guard.reason))


def test_in_flight_requests_may_be_fewer_and_not_more() -> None:
    """Five is the most with which idempotence keeps the order; fewer is slower, and no harm."""
    for setting in ("intermediate.producer_options", "destination.producer_options"):
        variable = client_options.get_variable(setting, "max.in.flight.requests.per.connection")
        assert load(GOOD | {variable: "1"}).list_warnings() == []
        assert "does not keep the order" in read_refusal(GOOD | {variable: "6"})
        assert "does not keep the order" in read_refusal(GOOD | {variable: "15"})


def test_what_an_exact_copy_stands_on_is_guarded() -> None:
    """The names that must never fall out of the table."""
    for setting, options in MUST_BE_GUARDED.items():
        assert [option for option in options.split() if option not in GUARDED[setting]] == []


def own_options(monkeypatch: pytest.MonkeyPatch, loaded: Settings) -> dict[str, dict[str, Any]]:
    """What each of the four clients is given, and Spark."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(
        kafka_clients, "_factories", kafka_clients.ClientFactories(*[cast(Any, made.append)] * 3)
    )
    kafka_clients.create_stage_two_consumer(loaded, 0)
    kafka_clients.create_transactional_producer(loaded, 0, "a", 1_000_000, LossCounter("x"))
    java = [
        {name.removeprefix("kafka.").lower(): value for name, value in options.items()}
        for options in (
            source.build_options(loaded, {TopicPartition("orders", 0): 0}),
            sink_options.build_producer_options(loaded, [1_048_588]),
        )
    ]
    return dict(zip(GUARDED, [*java, *made, session.build_configuration(loaded, 1)], strict=True))


@pytest.mark.usefixtures("empty_jars")
def test_the_guards_agree_with_what_reo_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reo gives a client is harmless by the guards' own measure; and what is given raw stands
    in its place.
    """
    for setting, options in own_options(monkeypatch, load(GOOD)).items():
        own = {
            option: str(value).lower()
            for option, value in options.items()
            if option in GUARDED[setting] and GUARDED[setting][option].harmless
        }
        assert own, setting
        assert [
            option
            for option, value in own.items()
            if not GUARDED[setting][option].is_allowed(value)
        ] == []
    names = {
        setting: "spark.app.name" if setting == SPARK_OPTIONS_TABLE else "client.id"
        for setting in GUARDED
    }
    raw = {
        client_options.get_variable(setting, option): f"mine in {setting}"
        for setting, option in names.items()
    }
    assert {
        setting: options[names[setting]]
        for setting, options in own_options(monkeypatch, load(GOOD | raw)).items()
    } == {setting: f"mine in {setting}" for setting in GUARDED}


def test_options_of_spark_itself_are_not_kafkas() -> None:
    """A name that Spark's source has goes to Spark as it is, every other one to Kafka's client."""
    assert client_options.to_spark_options({"fetchoffset.numretries": "5", "client.rack": "a"}) == {
        "fetchoffset.numretries": "5",
        "kafka.client.rack": "a",
    }


FORMS = {
    "reo.toml": (
        '[source.consumer_options]\nclient.rack = "a"\n"fetch.max.bytes" = 7\ncheck.crcs ='
        ' true\nfailOnDataLoss = "true"\n'
    ),
    "reo.yaml": (
        "source:\n  consumer_options:\n    client.rack: a\n    fetch.max.bytes: 7\n    check.crcs:"
        " true\n    failOnDataLoss: 'true'\n"
    ),
    "reo.json": (
        '{"source": {"consumer_options": {"client.rack": "a", "fetch": {"max": {"bytes": 7}},'
        ' "check.crcs": true, "failOnDataLoss": "true"}}}'
    ),
    "reo.ini": (
        "[source.consumer_options]\nclient.rack = a\nfetch.max.bytes = 7\ncheck.crcs ="
        " true\nfailOnDataLoss = true\n"
    ),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_options_in_a_file(tmp_path: Path, name: str) -> None:
    """Every form, with dots in names or tables in tables; the environment replaces one option and
    leaves the others; a child is handed all of them.
    """
    file = tmp_path / name
    file.write_text(FORMS[name])
    expected = {
        "client.rack": "a",
        "fetch.max.bytes": "7",
        "check.crcs": "true",
        "failondataloss": "true",
    }
    assert load(GOOD, str(file)).source.consumer_options == expected
    loaded = load(GOOD | {"REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "b"}, str(file))
    assert loaded.source.consumer_options == expected | {"client.rack": "b"}
    assert load(loaded.build_environment()).values == loaded.values


@pytest.mark.parametrize("option", ["client.rack", "log_level", "a.b_c.d", "x"])
def test_a_variable_can_carry_the_name(option: str) -> None:
    """A dot is an underscore, an underscore two."""
    for setting in GUARDED:
        assert client_options.parse_variable(client_options.get_variable(setting, option)) == (
            setting,
            option,
        )


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ('[source]\nconsumer_options = "client.rack=a"\n', "a table of options is expected"),
        (
            "[source.consumer_options]\nclient.rack = [1]\n",
            "a text, a number, true or false is expected",
        ),
        (
            '[source.consumer_options]\nclient.rack = "a\\u0000b"\n',
            "printable characters are expected",
        ),
        ('[source.consumer_options]\n"kafka.client.rack" = "a"\n', "without `kafka.` before them"),
        ('[source.consumer_options]\n"Client Rack" = "a"\n', "is not the name of an option"),
        (
            '[source.consumer_option]\nclient.rack = "a"\n',
            "unknown setting source.consumer_option (did you mean source.consumer_options?)",
        ),
    ],
)
def test_what_is_no_option(tmp_path: Path, file: str, part: str) -> None:
    """One message, before any client is made."""
    (tmp_path / "reo.toml").write_text(file)
    assert part in read_refusal(GOOD, str(tmp_path / "reo.toml"))
