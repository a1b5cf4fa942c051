"""The settings of TLS and SASL: contradictions are named before any client is made, and a secret
can be a file. With real clusters: tests/e2e/test_security.py.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.kafka import msk_iam
from common.settings import load
from common.settings.guarded_options import GUARDED
from common.settings.security import LOGIN_MODULES, WAYS, Security
from tests.harness.secured import Certificates

REQUIRED = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
    "REO_SOURCE_TOPIC": "t",
}
Given = dict[str, str]
SASL = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "a", "SASL_PASSWORD": "b"}
OAUTH = SASL | {"SASL_MECHANISM": "OAUTHBEARER", "SASL_OAUTH_TOKEN_URL": "https://a"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"SECURITY_PROTOCOL": "SASL_SSL"},
            ["SASL_MECHANISM is missing", "SASL_USERNAME is missing", "SASL_PASSWORD is missing"],
        ),
        (
            {"SASL_USERNAME": "a"},
            [
                "REO_SOURCE_SASL_USERNAME would not be used",
                "REO_SOURCE_SECURITY_PROTOCOL is PLAINTEXT",
            ],
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE_FILE": "{certificate}"},
            ["belong together"],
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_CA_FILE": "/nowhere.pem"},
            ["REO_SOURCE_SSL_CA_FILE: /nowhere.pem cannot be read: No such file"],
        ),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CA_FILE": "{key}"}, ["has no CERTIFICATE in PEM form"]),
        (
            {
                "SECURITY_PROTOCOL": "SSL",
                "SSL_CERTIFICATE_FILE": "{certificate}",
                "SSL_KEY_FILE": "{certificate}",
            },
            ["has no PRIVATE KEY in PEM form", "openssl pkcs8"],
        ),
        (
            {"SECURITY_PROTOCOL": "TLS"},
            ["one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL is expected, not 'TLS'"],
        ),
        (
            {"SASL_PASSWORD": "one\ntwo-of-it"},
            ["REO_SOURCE_SASL_PASSWORD: printable characters are expected"],
        ),
        (
            {"SASL_PASSWORD_FILE": "/nowhere"},
            ["REO_SOURCE_SASL_PASSWORD_FILE: /nowhere cannot be read"],
        ),
        (
            {"SASL_PASSWORD": "one", "SASL_PASSWORD_FILE": "{secret}"},
            ["name the same setting and contradict each other"],
        ),
        (
            SASL | {"SASL_MECHANISM": "PLAIN", "SASL_OAUTH_TOKEN_URL": "https://a"},
            ["TOKEN_URL would not be used: REO_SOURCE_SASL_MECHANISM is PLAIN"],
        ),
        (
            OAUTH | {"SASL_OAUTH_TOKEN_URL": "tokens.example:443"},
            ["OAUTH_TOKEN_URL: https://… is expected, not 'tokens.example:443'"],
        ),
        (
            OAUTH | {"SASL_OAUTH_GRANT": "jwt-bearer"},
            [
                "SASL_OAUTH_KEY_FILE is missing: REO_SOURCE_SASL_OAUTH_GRANT is jwt-bearer",
                "SASL_PASSWORD would not be used: REO_SOURCE_SASL_OAUTH_GRANT is jwt-bearer",
            ],
        ),
        (
            OAUTH | {"SASL_OAUTH_GRANT": "azure-imds", "SASL_OAUTH_SCOPE": "s"},
            [
                "SASL_USERNAME would not be used: REO_SOURCE_SASL_OAUTH_GRANT is azure-imds",
                "SASL_OAUTH_SCOPE would not be used: REO_SOURCE_SASL_OAUTH_GRANT is azure-imds",
            ],
        ),
        (
            OAUTH | {"SASL_OAUTH_EXTENSIONS": "logical_cluster=lkc-1"},
            ["SASL_OAUTH_EXTENSIONS: name=value,… is expected"],
        ),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "AWS_MSK_IAM"},
            [
                "SASL_AWS_REGION is missing: REO_SOURCE_SASL_MECHANISM is AWS_MSK_IAM",
                "the library that signs its tokens is missing: pip install 'reo[msk]'",
            ],
        ),
        (
            SASL | {"SASL_MECHANISM": "AWS_MSK_IAM"},
            ["SASL_USERNAME would not be used: REO_SOURCE_SASL_MECHANISM is AWS_MSK_IAM"],
        ),
        (OAUTH | {"SASL_OAUTH_CA_FILE": "{key}"}, ["CA_FILE: ", "has no CERTIFICATE in PEM form"]),
    ],
)
def test_contradictions_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Given, words: list[str]
) -> None:
    """Before any client is made, all at once, and without the secrets."""
    monkeypatch.setattr(msk_iam, "is_installed", lambda: False)
    certificates = Certificates(tmp_path / "certificates")
    (tmp_path / "secret").write_text("one-of-file\n")
    names = {
        "certificate": str(certificates.certificate),
        "key": str(certificates.key),
        "secret": str(tmp_path / "secret"),
    }
    with pytest.raises(SettingsInvalid) as found:
        load(
            REQUIRED
            | {f"REO_SOURCE_{name}": value.format(**names) for name, value in given.items()}
        )
    assert [word for word in words if word not in str(found.value)] == [], str(found.value)
    assert "two-of-it" not in str(found.value)
    assert "one-of-file" not in str(found.value)


def test_a_secret_can_be_a_file(tmp_path: Path) -> None:
    """Its last line's end is not part of it; blanks are. A child process gets the same."""
    (tmp_path / "secret").write_text(" 1_000 \n")
    given = REQUIRED | {
        "REO_SOURCE_SECURITY_PROTOCOL": "SASL_SSL",
        "REO_SOURCE_SASL_MECHANISM": "PLAIN",
        "REO_SOURCE_SASL_USERNAME": "a",
        "REO_SOURCE_SASL_PASSWORD_FILE": str(tmp_path / "secret"),
    }
    loaded = load(given)
    assert loaded.source_cluster.security.build_librdkafka_options()["sasl.password"] == " 1_000 "
    assert (
        load(loaded.build_environment()).source_cluster.security == loaded.source_cluster.security
    )
    assert "1_000" not in repr(loaded.source_cluster)


def test_no_raw_option_replaces_a_setting() -> None:
    """Each option that reo derives from the settings of TLS and SASL is guarded, in the clients
    that take raw options.
    """
    files = {
        field.name: __file__ if field.name.endswith("_file") else "x" for field in fields(Security)
    }
    for mechanism in LOGIN_MODULES:
        for grant in WAYS.keys() - LOGIN_MODULES.keys():
            chosen = {"sasl_mechanism": mechanism, "sasl_oauth_grant": grant}
            security = Security(**files | chosen | {"security_protocol": "SASL_SSL"})
            for table, options in (
                ("destination.producer_options", security.build_librdkafka_options()),
                ("source.consumer_options", security.build_spark_options()),
            ):
                names = {name.removeprefix("kafka.") for name in options}
                assert names <= GUARDED[table].keys(), (mechanism, grant)


@pytest.mark.parametrize(
    ("servers", "given", "region"),
    [
        ("b-1.demo.ab1.c2.kafka.eu-west-3.amazonaws.com:9098", "", "eu-west-3"),
        ("boot-ab1.c2.kafka-serverless.us-east-1.amazonaws.com:9098", "", "us-east-1"),
        ("b-1.demo.ab1.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "", "cn-north-1"),
        ("b-1.demo.ab1.c2.kafka.eu-west-3.amazonaws.com:9098", "us-east-2", "us-east-2"),
    ],
)
def test_the_region_is_the_clusters_own(
    monkeypatch: pytest.MonkeyPatch, servers: str, given: str, region: str
) -> None:
    """From the setting, or the brokers' names; for both kinds of client the broker's mechanism is
    OAUTHBEARER.
    """
    monkeypatch.setattr(msk_iam, "is_installed", lambda: True)
    iam = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "AWS_MSK_IAM"}
    values = iam | {"BOOTSTRAP_SERVERS": servers, "SASL_AWS_REGION": given}
    loaded = load(REQUIRED | {f"REO_SOURCE_{name}": text for name, text in values.items()})
    security = loaded.source_cluster.security
    assert security.sasl_aws_region == region
    assert security.build_librdkafka_options()["sasl.mechanism"] == "OAUTHBEARER"
    options = security.build_spark_options()
    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert f'sasl_aws_region="{region}"' in options["kafka.sasl.jaas.config"]
    assert options["kafka.sasl.login.callback.handler.class"] == "reo.MskLogin"
