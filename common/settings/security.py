"""TLS and SASL settings of a cluster, translated into the options of both clients.

librdkafka (stage two, and all requests outside Spark) and Kafka's Java client (Spark) name these
options differently. Certificates and keys are PEM files for both; Java gets their text (KIP-651),
so that executors on other machines need no files. Sources: librdkafka's CONFIGURATION.md; Kafka's
documentation, "Security"; for OAUTHBEARER librdkafka's OIDC method and KIP-768, both the
client-credentials grant of RFC 6749.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from common.settings.declaration import declare

_MODULES = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
OAUTH_HANDLER = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
PAIR = frozenset({"ssl_certificate_file", "ssl_key_file"})


@dataclass(frozen=True, slots=True)
class Security:
    """The settings of one side, by the last part of their names; empty: not set."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = declare(
        "PLAINTEXT"
    )
    """Security protocol of the {side} cluster's listeners."""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = declare(
        ""
    )
    """With `SASL_…`."""
    sasl_username: str = declare("")
    """With `SASL_…`; the client id with OAUTHBEARER."""
    sasl_password: str = declare("", kind="secret")
    """With `SASL_…`; the client secret with OAUTHBEARER."""
    sasl_oauth_token_url: str = declare("")
    """OAuth token endpoint URL (client-credentials grant)."""
    sasl_oauth_scope: str = declare("")
    """The scope that is asked for."""
    ssl_ca_file: str = declare("")
    """PEM file of the trusted CA certificates. Default: the system's (stage two) and Java's (stage
    one)."""
    ssl_certificate_file: str = declare("")
    """PEM file of the client certificate and its chain, for mutual TLS."""
    ssl_key_file: str = declare("")
    """PEM file of its private key, as PKCS #8, not encrypted."""

    def __repr__(self) -> str:
        """Without secrets, because printed settings show this."""
        return f"Security({self.security_protocol}, {self.sasl_mechanism or 'no SASL'})"

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL: a name and a password, or a token."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_oauth(self) -> bool:
        """Whether they authenticate with a token."""
        return self.has_sasl and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")

    def list_set(self, kind: str) -> list[str]:
        """The settings of a kind, `sasl_` or `ssl_`, that are set."""
        names = [field.name for field in fields(self) if field.name.startswith(kind)]
        return [name for name in names if getattr(self, name)]

    def override(self, own: Mapping[str, str]) -> Security:
        """These settings with a candidate's own in their place. Of the others it takes over what
        its protocol and mechanism use.
        """
        own_values: dict[str, Any] = _drop_empty(own)
        merged = replace(self, **own_values)
        unused = {
            *(() if merged.has_sasl else merged.list_set("sasl_")),
            *(() if merged.has_tls else merged.list_set("ssl_")),
            *(() if merged.has_oauth else merged.list_set("sasl_oauth_")),
            *(() if PAIR.isdisjoint(own_values) else PAIR),
        }
        empty: dict[str, Any] = dict.fromkeys(unused - own_values.keys(), "")
        return replace(merged, **empty) if own_values else self

    def build_librdkafka_options(self) -> dict[str, str]:
        """For confluent-kafka's clients."""
        options: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.has_sasl:
            options["sasl.mechanism"] = self.sasl_mechanism
        if self.has_oauth:
            options |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.sasl_username,
                "sasl.oauthbearer.client.secret": self.sasl_password,
                "sasl.oauthbearer.token.endpoint.url": self.sasl_oauth_token_url,
                "sasl.oauthbearer.scope": self.sasl_oauth_scope,
            }
        elif self.has_sasl:
            options |= {"sasl.username": self.sasl_username, "sasl.password": self.sasl_password}
        if self.has_tls:
            options |= {
                "ssl.endpoint.identification.algorithm": "https",
                "enable.ssl.certificate.verification": "true",
                "ssl.ca.location": self.ssl_ca_file,
                "ssl.certificate.location": self.ssl_certificate_file,
                "ssl.key.location": self.ssl_key_file,
            }
        return _drop_empty(options)

    def build_spark_options(self) -> dict[str, str]:
        """For the Java client that Spark creates: each option has the prefix `kafka.`."""
        options: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.has_sasl:
            options |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.jaas.config": self._build_jaas(),
            }
        if self.has_oauth:
            options |= {
                "sasl.login.callback.handler.class": OAUTH_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": self.sasl_oauth_token_url,
            }
        if self.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
        if self.has_tls and self.ssl_ca_file:
            options |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": Path(self.ssl_ca_file).read_text(),
            }
        if self.has_tls and self.ssl_certificate_file:
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(self.ssl_certificate_file).read_text(),
                "ssl.keystore.key": Path(self.ssl_key_file).read_text(),
            }
        return {f"kafka.{name}": value for name, value in options.items()}

    def _build_jaas(self) -> str:
        names = ("clientId", "clientSecret") if self.has_oauth else ("username", "password")
        values = zip(
            (*names, "scope"),
            (self.sasl_username, self.sasl_password, self.sasl_oauth_scope),
            strict=True,
        )
        options = " ".join(f"{name}={_quote(value)}" for name, value in values if value)
        return f"{LOGIN_MODULES[self.sasl_mechanism]} required {options};"


def _drop_empty(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _quote(value: str) -> str:
    """As Kafka's JAAS text is read: java.io.StreamTokenizer, which takes a backslash and a quote
    with a backslash before them.
    """
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
