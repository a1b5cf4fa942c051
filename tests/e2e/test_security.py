"""Clusters that demand TLS or SASL: both stages authenticate with one set of settings; a refused
principal is told which cluster refused it and why; no log has a secret. The settings alone:
tests/unit/common/settings/test_security_settings.py.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.commands import reo_with
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.secured import EXTENSIONS, PASSWORD, Certificates, Secured
from tests.harness.service import (
    build_environment,
    read_command_line,
    send_signal,
    stopped,
)
from tests.harness.token_server import (
    AUDIENCE,
    SCOPE,
    USER,
    Tokens,
    TokenServer,
    serve_tokens,
)

CLIENT_SECRET = "s3cr3t-of-the-client%&"
WRONG = "n0t-the-0ne"
TOKEN_S = 15
"""Kafka's clients renew a token when four fifths of that are over."""
RECORDS = 300
PARTITIONS = 2
Given = dict[str, str]


@dataclass
class Stand:
    """Both clusters, and what a client needs."""

    source: Secured
    destination: Secured
    certificates: Certificates
    token_servers: tuple[TokenServer, TokenServer]
    """Over HTTP, with tokens for an hour; and over HTTPS, with tokens for TOKEN_S."""

    @property
    def clusters(self) -> Clusters:
        """For the judge."""
        return Clusters(self.source.cluster, self.destination.cluster)

    def way(self, name: str) -> tuple[str, Given]:
        """A listener, and the settings that open it."""
        user = {"sasl_username": USER, "sasl_password": PASSWORD}
        trust = {"ssl_ca_file": str(self.certificates.authority)}
        own = {
            "ssl_certificate_file": str(self.certificates.certificate),
            "ssl_key_file": str(self.certificates.key),
        }
        return {
            "PLAIN over TLS": (
                "ENCRYPTED",
                {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"} | user | trust,
            ),
            "PLAIN": (
                "OPEN",
                {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"} | user,
            ),
            "SCRAM-SHA-256": (
                "OPEN",
                {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"} | user,
            ),
            "SCRAM-SHA-512 over TLS": (
                "ENCRYPTED",
                {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"} | user | trust,
            ),
            "TLS": ("TLS", {"security_protocol": "SSL"} | trust),
            "mutual TLS": ("MUTUAL", {"security_protocol": "SSL"} | trust | own),
            **self._list_oauth_ways(trust),
        }[name]

    def _list_oauth_ways(self, trust: Given) -> dict[str, tuple[str, Given]]:
        plain, encrypted = self.token_servers
        oauth = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        client = {"sasl_username": USER, "sasl_oauth_scope": SCOPE}
        secret = client | {"sasl_password": CLIENT_SECRET}
        demanding = oauth | {"sasl_oauth_extensions": EXTENSIONS}
        endpoint = {
            "sasl_oauth_token_url": encrypted.url,
            "sasl_oauth_ca_file": str(self.certificates.token_authority),
        }
        key = {
            "sasl_oauth_grant": "jwt-bearer",
            "sasl_oauth_key_file": str(encrypted.tokens.client_key),
            "sasl_oauth_audience": AUDIENCE,
        }
        azure = {"sasl_oauth_grant": "azure-imds", "sasl_oauth_token_url": plain.azure_url}
        unencrypted = {"sasl_oauth_token_url": plain.url}
        return {
            "OAUTHBEARER": ("OPEN", oauth | secret | unencrypted),
            "OAUTHBEARER over TLS": (
                "ENCRYPTED",
                oauth | secret | unencrypted | trust | {"security_protocol": "SASL_SSL"},
            ),
            "client-credentials": ("DEMANDING", demanding | secret | endpoint),
            "jwt-bearer": ("DEMANDING", demanding | client | endpoint | key),
            "azure-imds": ("DEMANDING", demanding | azure),
        }

    def environment(
        self, topic: str, source: tuple[str, Given], destination: tuple[str, Given] | None = None
    ) -> dict[str, str]:
        """Of a service that enters both clusters so; the destination without security when nothing
        is said.
        """
        found = build_environment(self.clusters, topic, {"log_level": "DEBUG"})
        for side, secured, way in (
            ("SOURCE", self.source, source),
            ("DESTINATION", self.destination, destination),
        ):
            if way is not None:
                found[f"REO_{side}_BOOTSTRAP_SERVERS"] = secured.at(way[0])
                found |= {f"REO_{side}_{name.upper()}": value for name, value in way[1].items()}
        return found


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Two clusters with all listeners."""
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates(folder / "certificates")
    made: list[Secured] = []
    tokens = Tokens(folder / "tokens")
    with (
        serve_tokens(tokens, CLIENT_SECRET) as plain,
        serve_tokens(tokens, CLIENT_SECRET, TOKEN_S, certificates.token_server) as encrypted,
    ):
        try:
            made += [
                Secured(folder / side, certificates, tokens) for side in ("source", "destination")
            ]
            yield Stand(made[0], made[1], certificates, (plain, encrypted))
        finally:
            for secured in made:
                secured.cluster.broker.kill()


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("PLAIN over TLS", "SCRAM-SHA-512 over TLS"),
        pytest.param("SCRAM-SHA-256", "TLS", marks=pytest.mark.long),
        pytest.param("mutual TLS", "PLAIN", marks=pytest.mark.long),
        pytest.param("OAUTHBEARER over TLS", "OAUTHBEARER", marks=pytest.mark.long),
    ],
)
def test_both_stages_authenticate(
    stand: Stand, topic: str, start: Start, tmp_path: Path, source: str, destination: str
) -> None:
    """An exact copy between clusters that each demand something of their own; the log, at DEBUG,
    has no secret, nor has any command line.
    """
    stand.source.cluster.create(topic, PARTITIONS)
    records = make_records(range(RECORDS), PARTITIONS)
    stand.source.cluster.write(topic, records)
    point = "one: query started"
    service = start(
        topic,
        "--stop-at-end",
        environment=stand.environment(topic, stand.way(source), stand.way(destination))
        | {"REO_FREEZE_AT": f"{point}:1:{tmp_path / 'frozen'}"},
    )
    stage_one = wait_for_failpoint(tmp_path / "frozen", point)
    assert service.find_pid("jvm")
    lines = {read_command_line(pid) for pid in service.list_processes()}
    send_signal(stage_one, signal.SIGCONT)
    assert service.wait_for_exit() == 0, service.read_log_tail()
    stand.clusters.wait_for_copy(topic, RECORDS)
    for secret in (PASSWORD, CLIENT_SECRET, "PRIVATE KEY"):
        assert secret not in service.log
        assert not [line for line in lines if secret in line]


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("jwt-bearer", "azure-imds"),
        pytest.param("azure-imds", "client-credentials", marks=pytest.mark.long),
    ],
)
def test_tokens_are_renewed(
    stand: Stand, topic: str, start: Start, source: str, destination: str
) -> None:
    """Each grant and the extensions, with both kinds of client; the broker closes a connection
    whose token is over, and the copy goes on with the next one.
    """
    for server in stand.token_servers:
        server.issued.clear()
        server.lifetime_s = TOKEN_S
    stand.source.cluster.create(topic, PARTITIONS)
    stand.source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS))
    environment = stand.environment(topic, stand.way(source), stand.way(destination))
    service = start(topic, environment=environment)
    stand.clusters.wait_for_copy(topic, RECORDS)
    wanted = {(grant, is_java) for grant in (source, destination) for is_java in (True, False)}
    for server in stand.token_servers:
        assert {*server.issued} <= wanted
        server.issued.clear()
    until(
        lambda: wanted == {one for server in stand.token_servers for one in server.issued},
        "both kinds of client renew their tokens of both grants",
    )
    stand.source.cluster.write(topic, make_records(range(RECORDS, 2 * RECORDS), PARTITIONS))
    stand.clusters.wait_for_copy(topic, 2 * RECORDS)
    assert not service.crashes
    for secret in (CLIENT_SECRET, "PRIVATE KEY"):
        assert secret not in service.log


def omit_settings(way: tuple[str, Given], *names: str, **other: str) -> tuple[str, Given]:
    """A way in with some settings left out or changed."""
    return way[0], {name: value for name, value in way[1].items() if name not in names} | other


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("wrong password, PLAIN", "Authentication failed"),
        ("wrong password, SCRAM", "Authentication failed"),
        ("wrong client secret", "invalid_client"),
        ("wrong key of assertions", "invalid_grant"),
        ("no extensions", "Authentication failed"),
        ("unknown authority of the token endpoint", "unable to get local issuer certificate"),
        ("unknown authority", "unable to get local issuer certificate"),
        ("expired certificate", "certificate has expired"),
        ("certificate of another host", "Hostname mismatch"),
        ("no certificate of our own", "certificate"),
    ],
)
def test_who_may_not_is_told_why(
    stand: Stand, topic: str, start: Start, case: str, words: str
) -> None:
    """Exit code 12, at once; the error names the cluster and the reason, and nothing secret."""
    stand.source.cluster.create(topic, PARTITIONS)
    tls = stand.way("TLS")
    way = {
        "wrong password, PLAIN": omit_settings(stand.way("PLAIN over TLS"), sasl_password=WRONG),
        "wrong password, SCRAM": omit_settings(stand.way("SCRAM-SHA-256"), sasl_password=WRONG),
        "wrong client secret": omit_settings(stand.way("OAUTHBEARER"), sasl_password=WRONG),
        "wrong key of assertions": omit_settings(
            stand.way("jwt-bearer"), sasl_oauth_key_file=str(stand.certificates.key)
        ),
        "no extensions": omit_settings(stand.way("client-credentials"), "sasl_oauth_extensions"),
        "unknown authority of the token endpoint": omit_settings(
            stand.way("client-credentials"), sasl_oauth_ca_file=str(stand.certificates.stranger)
        ),
        "unknown authority": omit_settings(tls, ssl_ca_file=str(stand.certificates.stranger)),
        "expired certificate": ("EXPIRED", tls[1]),
        "certificate of another host": ("ELSEWHERE", tls[1]),
        "no certificate of our own": ("MUTUAL", tls[1]),
    }[case]
    service = start(
        topic,
        "deduplicator",
        environment=stand.environment(topic, way) | {"REO_CONNECT_TIMEOUT_S": "3600"},
    )
    stopped(service, 12, "AccessRefused", "the source cluster", words, "source.security_protocol")
    assert WRONG not in service.log


@pytest.mark.parametrize(
    ("listener", "protocol", "exit_code", "words"),
    [
        (
            "TLS",
            "PLAINTEXT",
            10,
            [
                "does not answer: its listener speaks TLS",
                "source.security_protocol is PLAINTEXT. Set it to SSL or SASL_SSL",
            ],
        ),
        (
            None,
            "SSL",
            12,
            ["its listener does not speak TLS", "source.security_protocol=PLAINTEXT"],
        ),
    ],
)
def test_the_wrong_protocol_is_named(
    stand: Stand, topic: str, listener: str | None, protocol: str, exit_code: int, words: list[str]
) -> None:
    """Plain text where TLS is spoken, and the reverse: what was met, and the setting that mends
    it.
    """
    address = stand.source.at(listener) if listener else stand.source.cluster.address
    environment = build_environment(stand.clusters, topic, {"connect_timeout_s": "2"}) | {
        "REO_SOURCE_BOOTSTRAP_SERVERS": address,
        "REO_SOURCE_SECURITY_PROTOCOL": protocol,
    }

    def is_named() -> bool:
        said = reo_with(environment, "lag", exit_code=exit_code).stderr
        return all(word in said for word in words)

    # in so short a timeout the listener can answer too late to be known
    until(is_named, f"what is said has {words}")


def test_each_candidate_is_connected_to_by_its_own_settings(stand: Stand, topic: str) -> None:
    """One demands SCRAM, the other TLS: `reo check` reaches both, and a wrong password of the
    second is the second's alone.
    """
    stand.source.cluster.create(topic, 1)
    first, second = stand.way("SCRAM-SHA-256"), stand.way("PLAIN over TLS")
    environment = stand.environment(topic, first) | {
        "REO_SOURCE_BOOTSTRAP_SERVERS": (
            f"{stand.source.at(first[0])};{stand.destination.at(second[0])}"
        ),
        "REO_CONNECT_TIMEOUT_S": "5",
        **{f"REO_SOURCE_2_{name.upper()}": value for name, value in second[1].items()},
    }

    candidates = [
        f"source candidate {stand.source.at(first[0])}",
        f"source candidate {stand.destination.at(second[0])}",
    ]

    def read_levels(**more: str) -> list[str | None]:
        found = json.loads(
            reo_with(
                environment | more, "check", "--mode", "failover", "--json", exit_code=None
            ).stdout
        )["findings"]
        levels = {
            finding["about"]: finding["level"]
            for finding in found
            if finding["seen"].endswith(" broker") or finding["level"] == "warning"
        }
        return [levels.get(name) for name in candidates]

    assert read_levels(REO_CONNECT_TIMEOUT_S="20") == ["ok", "ok"]
    refused = {"REO_SOURCE_2_SASL_PASSWORD": WRONG, "REO_CONNECT_TIMEOUT_S": "3600"}
    assert read_levels(**refused) == ["ok", "warning"], "only the second refuses"
