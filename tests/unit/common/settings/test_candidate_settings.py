"""Settings of source candidates: how several are named, what each has of its own, and what is
refused before any client is made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import load
from reo.config import list_settings
from replicator import source
from tests.unit.replicator.test_candidates import GOOD, PLACE


def test_candidates_are_separated_by_semicolons() -> None:
    """Commas are between the brokers of one; each candidate by itself has the other settings of the
    source.
    """
    settings = load(GOOD)
    assert [cluster.bootstrap_servers for cluster in settings.sources] == ["a:1,b:1", "c:1"]
    assert settings.source_cluster is settings.sources[0]
    other = settings.select_source(settings.sources[1])
    assert [cluster.bootstrap_servers for cluster in other.sources] == ["c:1"]
    assert other.values == settings.values | {"source.bootstrap_servers": "c:1"}
    assert load(settings.build_environment()).values == settings.values


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"REO_SOURCE_MODE": "single"}, "names 2 clusters, and REO_SOURCE_MODE is single"),
        ({"REO_SOURCE_MODE": "both"}, "one of single, failover is expected"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;;b:1"}, "is empty or named twice"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;a:1"}, "is empty or named twice"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;"}, "is empty or named twice"),
        (
            {"REO_SOURCE_TOPIC": "", "REO_TOPICS": "^orders-.*", "REO_APPLICATION": "a"},
            "REO_SOURCE_MODE=failover and a pattern: a topic that one",
        ),
        ({"REO_DEDUPLICATOR_WITHOUT_FRONTIER": "append"}, "have to be the only ones"),
        (
            {"REO_SOURCE_BACKOFF_MIN_MS": "20000"},
            "REO_SOURCE_BACKOFF_MIN_MS is more than REO_SOURCE_BACKOFF_MAX_MS",
        ),
    ],
)
def test_candidates_that_make_no_sense_are_refused(changes: dict[str, str], part: str) -> None:
    """Before any client is made."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(GOOD | changes)
    assert part in str(wrong.value)


OWN = {
    "REO_SOURCE_MODE": "failover",
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1",
    "REO_SOURCE_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "REO_SOURCE_SASL_MECHANISM": "PLAIN",
    "REO_SOURCE_SASL_USERNAME": "common",
    "REO_SOURCE_SASL_PASSWORD": "s3cr3t-common",
    "REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "a",
    "REO_SOURCE_2_SASL_MECHANISM": "SCRAM-SHA-512",
    "REO_SOURCE_2_SASL_PASSWORD": "s3cr3t-second",
    "REO_SOURCE_2_CONSUMER_OPTIONS_CLIENT_RACK": "b",
    "REO_SOURCE_2_CONSUMER_OPTIONS_FETCH_MAX_BYTES": "7",
    "REO_SOURCE_3_SECURITY_PROTOCOL": "PLAINTEXT",
}


def test_a_candidate_has_settings_of_its_own() -> None:
    """Its own, or else what all have, as far as its protocol uses it; also when it is the only
    source of the settings, and in a child process.
    """
    for loaded in (load(GOOD | OWN), load(load(GOOD | OWN).build_environment())):
        first, second, third = loaded.sources
        assert first.security.build_librdkafka_options() == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "common",
            "sasl.password": "s3cr3t-common",
        }
        assert second.security.build_librdkafka_options() == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "common",
            "sasl.password": "s3cr3t-second",
        }
        assert third.security.build_librdkafka_options() == {"security.protocol": "PLAINTEXT"}
        for cluster, options in (
            (first, {"client.rack": "a"}),
            (second, {"client.rack": "b", "fetch.max.bytes": "7"}),
            (third, {"client.rack": "a"}),
        ):
            alone = loaded.select_source(cluster)
            assert (alone.source.bootstrap_servers, alone.source.security) == (
                cluster.bootstrap_servers,
                cluster.security,
            )
            assert alone.source.consumer_options == options
            assert load(alone.build_environment()).source.security == cluster.security
            java = source.build_options(alone, {PLACE: 0})
            assert java["kafka.client.rack"] == options["client.rack"]
            assert ("s3cr3t-second" in java.get("kafka.sasl.jaas.config", "")) == (
                cluster is second
            )


@pytest.mark.parametrize("form", ["toml", "yaml", "ini"])
def test_a_candidates_settings_in_a_file(tmp_path: Path, form: str) -> None:
    """As a table with its number; a secret may be a file, and none is shown."""
    text = {
        "toml": (
            '[source.2]\nsecurity_protocol = "SSL"\nssl_ca_file ='
            ' "CA"\n[source.2.consumer_options]\nclient.rack = "b"\n'
        ),
        "yaml": (
            "source:\n  2:\n    security_protocol: SSL\n    ssl_ca_file: CA\n   "
            " consumer_options:\n      client.rack: b\n"
        ),
        "ini": (
            "[source.2]\nsecurity_protocol = SSL\nssl_ca_file ="
            " CA\n[source.2.consumer_options]\nclient.rack = b\n"
        ),
    }[form]
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / f"reo.{form}").write_text(text.replace("CA", str(tmp_path / "ca.pem")))
    both = GOOD | {"REO_SOURCE_MODE": "failover", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"}
    loaded = load(both, str(tmp_path / f"reo.{form}"))
    assert [cluster.security.security_protocol for cluster in loaded.sources] == [
        "PLAINTEXT",
        "SSL",
    ]
    assert loaded.select_source(loaded.sources[1]).source.consumer_options == {"client.rack": "b"}
    (tmp_path / "secret").write_text("s3cr3t")
    secret = {
        "REO_SOURCE_2_SECURITY_PROTOCOL": "SASL_SSL",
        "REO_SOURCE_2_SASL_MECHANISM": "PLAIN",
        "REO_SOURCE_2_SASL_USERNAME": "u",
        "REO_SOURCE_2_SASL_PASSWORD_FILE": str(tmp_path / "secret"),
    }
    loaded = load(both | secret, str(tmp_path / f"reo.{form}"))
    assert loaded.sources[1].security.sasl_password == "s3cr3t"
    assert "s3cr3t" not in repr(list(list_settings(loaded)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"REO_SOURCE_2_SASL_MECHANISM": "OAUTHBEARER"},
            (
                "REO_SOURCE_2_SASL_OAUTH_TOKEN_URL is missing: REO_SOURCE_2_SASL_MECHANISM is"
                " OAUTHBEARER"
            ),
        ),
        (
            {"REO_SOURCE_3_SASL_USERNAME": "u"},
            (
                "REO_SOURCE_3_SASL_USERNAME would not be used: REO_SOURCE_3_SECURITY_PROTOCOL is"
                " PLAINTEXT"
            ),
        ),
        (
            {"REO_SOURCE_4_SASL_USERNAME": "u"},
            (
                "REO_SOURCE_4_SASL_USERNAME would not be used: REO_SOURCE_BOOTSTRAP_SERVERS names 3"
                " clusters"
            ),
        ),
        (
            {"REO_SOURCE_2_SASL_USERNAM": "u"},
            "REO_SOURCE_2_SASL_USERNAM: unknown setting (did you mean REO_SOURCE_2_SASL_USERNAME?)",
        ),
        ({"REO_SOURCE_2_SECURITY_PROTOCOL": "TLS"}, "REO_SOURCE_2_SECURITY_PROTOCOL: one of"),
        (
            {"REO_SOURCE_2_CONSUMER_OPTIONS_ISOLATION_LEVEL": "read_uncommitted"},
            "REO_SOURCE_2_CONSUMER_OPTIONS_ISOLATION_LEVEL is not passed through",
        ),
        (
            {"REO_SOURCE_MODE": "single", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1"},
            "REO_SOURCE_2_SASL_MECHANISM would not be used: REO_SOURCE_MODE is single",
        ),
    ],
)
def test_wrong_settings_of_a_candidate_are_named(changes: dict[str, str], words: str) -> None:
    """By its number, and as the user spells them."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(GOOD | OWN | changes)
    assert words in str(wrong.value)
    assert "s3cr3t" not in str(wrong.value)
