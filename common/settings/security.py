"""TLS and SASL settings of a cluster, translated into the options of both clients.

librdkafka (stage two, and all requests outside Spark) and Kafka's Java client (Spark) name these
options differently. Certificates and keys are PEM files for both; Java gets their text (KIP-651),
so that executors on other machines need no files. Sources: librdkafka's CONFIGURATION.md; Kafka's
documentation, "Security"; for OAUTHBEARER librdkafka's OIDC method and KIP-768, both the
client-credentials grant of RFC 6749.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from common.settings.declaration import declare

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
PAIR = frozenset({"ssl_certificate_file", "ssl_key_file"})
PROBE_S = 5.0
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----"
"""PKCS #8, the one form that both clients read (KIP-651); not encrypted, because Java 17 cannot
give Kafka the key of PBES2, which is what OpenSSL writes.
"""


@dataclass(frozen=True, slots=True)
class Security:
    """The settings of one side, by the last part of their names (`common.settings.root_section`);
    an empty one is not set.
    """

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = declare(
        "PLAINTEXT", "Security protocol of the {side} cluster's listeners."
    )
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = declare(
        "", "With `SASL_…`."
    )
    sasl_username: str = declare("", "With `SASL_…`; the client id with OAUTHBEARER.")
    sasl_password: str = declare(
        "", "With `SASL_…`; the client secret with OAUTHBEARER.", kind="secret"
    )
    sasl_oauth_token_url: str = declare("", "OAuth token endpoint URL (client-credentials grant).")
    sasl_oauth_scope: str = declare("", "The scope that is asked for.")
    ssl_ca_file: str = declare(
        "",
        "PEM file of the trusted CA certificates. Default: the system's (stage two) and Java's"
        " (stage one).",
    )
    ssl_certificate_file: str = declare(
        "", "PEM file of the client certificate and its chain, for mutual TLS."
    )
    ssl_key_file: str = declare("", "PEM file of its private key, as PKCS #8, not encrypted.")

    def __repr__(self) -> str:
        """Without secrets, because printed settings show this."""
        return f"Security({self.security_protocol}, {self.sasl_mechanism or 'no SASL'})"

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL: a name and a password, or a token."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")

    def override(self, own: Mapping[str, str]) -> Security:
        """These settings with a candidate's own in their place. Of the others it takes over what
        its protocol and mechanism use.
        """
        own_values: dict[str, Any] = {name: value for name, value in own.items() if value}
        if not own_values:
            return self
        merged = replace(self, **own_values)
        unused = {
            name.name
            for name in fields(self)
            if (name.name.startswith("sasl_") and not merged.has_sasl)
            or (name.name.startswith("ssl_") and not merged.has_tls)
            or (name.name.startswith("sasl_oauth_") and merged.sasl_mechanism != "OAUTHBEARER")
            or (name.name in PAIR and not PAIR.isdisjoint(own_values))
        }
        empty: dict[str, Any] = dict.fromkeys(unused - own_values.keys(), "")
        return replace(merged, **empty)

    def build_librdkafka_options(self) -> dict[str, str]:
        """For confluent-kafka's clients."""
        options: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.has_sasl:
            options["sasl.mechanism"] = self.sasl_mechanism
            options |= (
                self._build_oidc_options()
                if self.sasl_mechanism == "OAUTHBEARER"
                else {"sasl.username": self.sasl_username, "sasl.password": self.sasl_password}
            )
        if self.has_tls:
            options |= {
                "ssl.endpoint.identification.algorithm": "https",
                "enable.ssl.certificate.verification": "true",
            }
            options |= _drop_empty(
                {
                    "ssl.ca.location": self.ssl_ca_file,
                    "ssl.certificate.location": self.ssl_certificate_file,
                    "ssl.key.location": self.ssl_key_file,
                }
            )
        return options

    def build_spark_options(self) -> dict[str, str]:
        """For the Java client that Spark creates: each option has the prefix `kafka.`."""
        return {f"kafka.{name}": value for name, value in self._build_java_options().items()}

    def _build_java_options(self) -> dict[str, str]:
        options: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.has_sasl:
            options |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.jaas.config": self._build_jaas(),
            }
            if self.sasl_mechanism == "OAUTHBEARER":
                options |= {
                    "sasl.login.callback.handler.class": OAUTH_HANDLER,
                    "sasl.oauthbearer.token.endpoint.url": self.sasl_oauth_token_url,
                }
        if self.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
            if self.ssl_ca_file:
                options |= {
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.certificates": Path(self.ssl_ca_file).read_text(),
                }
            if self.ssl_certificate_file:
                options |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": Path(self.ssl_certificate_file).read_text(),
                    "ssl.keystore.key": Path(self.ssl_key_file).read_text(),
                }
        return options

    def explain_failed_verification(self, bootstrap_servers: str) -> str:
        """What is wrong with a broker's certificate, by the standard library, where librdkafka says
        only that it could not be verified; empty if nothing is.
        """
        for address, failed in _try_handshakes(
            bootstrap_servers, ssl.create_default_context(cafile=self.ssl_ca_file or None)
        ):
            if isinstance(failed, ssl.SSLCertVerificationError):
                return f"{address}: {failed.verify_message}"
        return ""  # another failure is not about the certificate, and known already

    @staticmethod
    def has_tls_listener(bootstrap_servers: str) -> bool:
        """Whether one of these addresses answers a TLS handshake, whatever its certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return any(failed is None for _, failed in _try_handshakes(bootstrap_servers, context))

    def find_errors(self, prefix: str) -> Iterator[str]:
        """One message for each setting that contradicts another one or cannot be read; `prefix` is
        what their names begin with.
        """
        for need in ("sasl_mechanism", "sasl_username", "sasl_password"):
            if self.has_sasl and not getattr(self, need):
                yield (
                    f"{prefix}{need} is missing: {prefix}security_protocol is"
                    f" {self.security_protocol}"
                )
        if self.has_sasl and (self.sasl_mechanism == "OAUTHBEARER") != bool(
            self.sasl_oauth_token_url
        ):
            yield (
                f"{prefix}sasl_oauth_token_url belongs to {prefix}sasl_mechanism=OAUTHBEARER: give"
                " both or neither"
            )
        if self.sasl_oauth_token_url and not re.fullmatch(
            r"https?://[^\s,]+", self.sasl_oauth_token_url
        ):
            yield (
                f"{prefix}sasl_oauth_token_url: https://… is expected, not"
                f" {self.sasl_oauth_token_url!r}"
            )
        for kind, used in (("sasl_", self.has_sasl), ("ssl_", self.has_tls)):
            unused_names = [
                field.name
                for field in fields(self)
                if field.name.startswith(kind) and getattr(self, field.name)
            ]
            if unused_names and not used:
                yield (
                    f"{', '.join(f'{prefix}{name}' for name in unused_names)} would not be used:"
                    f" {prefix}security_protocol is {self.security_protocol}"
                )
        if bool(self.ssl_certificate_file) != bool(self.ssl_key_file):
            yield (
                f"{prefix}ssl_certificate_file and {prefix}ssl_key_file belong together: give both"
                " or neither"
            )
        for name, mark in (
            ("ssl_ca_file", CERTIFICATE),
            ("ssl_certificate_file", CERTIFICATE),
            ("ssl_key_file", KEY),
        ):
            yield from _find_unfit(f"{prefix}{name}", getattr(self, name), mark)

    def _build_oidc_options(self) -> dict[str, str]:
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": self.sasl_username,
            "sasl.oauthbearer.client.secret": self.sasl_password,
            "sasl.oauthbearer.token.endpoint.url": self.sasl_oauth_token_url,
        } | _drop_empty({"sasl.oauthbearer.scope": self.sasl_oauth_scope})

    def _build_jaas(self) -> str:
        names = (
            ("clientId", "clientSecret")
            if self.sasl_mechanism == "OAUTHBEARER"
            else ("username", "password")
        )
        values = dict(
            zip(names, (self.sasl_username, self.sasl_password), strict=True)
        ) | _drop_empty({"scope": self.sasl_oauth_scope})
        return (
            " ".join(
                [
                    LOGIN_MODULES[self.sasl_mechanism],
                    "required",
                    *(f"{name}={_quote(value)}" for name, value in values.items()),
                ]
            )
            + ";"
        )


def _drop_empty(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _try_handshakes(
    bootstrap_servers: str, context: ssl.SSLContext
) -> Iterator[tuple[str, Exception | None]]:
    """Each address, and how a TLS handshake with it failed, if it did."""
    for address in map(str.strip, bootstrap_servers.split(",")):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")  # as IPv6 is written before a port
        failure: Exception | None = None
        try:
            with (
                socket.create_connection((host, int(port)), PROBE_S) as connection,
                context.wrap_socket(connection, server_hostname=host),
            ):
                pass
        except (OSError, ValueError) as failed:
            failure = failed
        yield address, failure


def _quote(value: str) -> str:
    """As Kafka's JAAS text is read: java.io.StreamTokenizer, which takes a backslash and a quote
    with a backslash before them.
    """
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _find_unfit(name: str, file: str, mark: str) -> Iterator[str]:
    """Why a PEM file cannot be used; nothing of what is in it is said."""
    if not file:
        return
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as failed:
        yield (
            f"{name}: {file} cannot be read:"
            f" {failed.strerror if isinstance(failed, OSError) else 'not text'}"
        )
        return
    if mark not in text:
        how = " (`openssl pkcs8 -topk8 -nocrypt` makes it of other keys)" if mark is KEY else ""
        yield f"{name}: {file} has no {mark.strip('-').removeprefix('BEGIN ')} in PEM form{how}"
