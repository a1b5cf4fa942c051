"""TLS and SASL settings of a cluster, translated into the options of both clients.

librdkafka (stage two, and all requests outside Spark) and Kafka's Java client (Spark) name these
options differently. Certificates and keys are PEM files for both; Java gets their text (KIP-651),
so that executors on other machines need no files. Sources: librdkafka's CONFIGURATION.md; Kafka's
documentation, "Security".

With OAUTHBEARER librdkafka obtains tokens itself (its method "oidc"). The Java client that Spark
has, of Kafka 3.9, knows only one of the grants, so there a class of ours does the same
(`replicator/spark/sink/TokenLogin.java`); its options have the names of the settings. With
AWS_MSK_IAM tokens are signed here (`common.kafka.msk_iam`; `MskLogin.java`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from common.settings.declaration import declare

_MODULES = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
TOKEN_HANDLERS = {"OAUTHBEARER": "reo.TokenLogin", "AWS_MSK_IAM": "reo.MskLogin"}
"""By mechanism, what obtains tokens for the Java client. For the broker both are OAUTHBEARER."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
PAIR = frozenset({"ssl_certificate_file", "ssl_key_file"})


class Way(NamedTuple):
    """The settings of one way to authenticate, by the last part of their names: what it needs, and
    what else it takes.
    """

    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


PASSWORD = Way(("sasl_mechanism", "sasl_username", "sasl_password"))
_OAUTH = ("sasl_oauth_grant", "sasl_oauth_extensions")
_ENDPOINT = ("sasl_oauth_scope", "sasl_oauth_ca_file")
WAYS = {
    "client-credentials": Way((*PASSWORD.needs, "sasl_oauth_token_url"), (*_OAUTH, *_ENDPOINT)),
    "jwt-bearer": Way(
        ("sasl_mechanism", "sasl_username", "sasl_oauth_token_url", "sasl_oauth_key_file"),
        (*_OAUTH, *_ENDPOINT, "sasl_oauth_audience"),
    ),
    "azure-imds": Way(("sasl_mechanism", "sasl_oauth_token_url"), _OAUTH),
    "AWS_MSK_IAM": Way(("sasl_mechanism", "sasl_aws_region")),
}
"""By the mechanism, or the grant of OAUTHBEARER. Any other takes a name and a password."""


@dataclass(frozen=True, slots=True)
class Security:
    """The settings of one side, by the last part of their names; empty: not set."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = declare(
        "PLAINTEXT"
    )
    """Security protocol of the cluster's listeners."""
    sasl_mechanism: Literal[
        "", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"
    ] = declare("")
    """With `SASL_…`."""
    sasl_username: str = declare("")
    """With `SASL_…`; the client id with OAUTHBEARER."""
    sasl_password: str = declare("", kind="secret")
    """With `SASL_…`; the client secret with OAUTHBEARER."""
    sasl_oauth_grant: Literal["client-credentials", "jwt-bearer", "azure-imds"] = declare(
        "client-credentials"
    )
    """[How a token is obtained](how-to/secure.md#oauth) with OAUTHBEARER."""
    sasl_oauth_token_url: str = declare("")
    """OAuth token endpoint URL; with `azure-imds` the whole URL of the machine's metadata service,
    `http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=…`."""
    sasl_oauth_scope: str = declare("")
    """The scope that is asked for."""
    sasl_oauth_extensions: str = declare("")
    """SASL extensions for the broker, `name=value,…`."""
    sasl_oauth_ca_file: str = declare("")
    """PEM file of the CA certificates for the token endpoint. Default: the system's and, in Spark,
    Java's."""
    sasl_oauth_key_file: str = declare("")
    """With `jwt-bearer`: PEM file of the RSA key that signs assertions (RS256), as PKCS #8, not
    encrypted."""
    sasl_oauth_audience: str = declare("")
    """With `jwt-bearer`: the audience of assertions. Default: the token endpoint's URL."""
    sasl_aws_region: str = declare("")
    """With AWS_MSK_IAM: the cluster's region. Default: the one in its brokers' names."""
    ssl_ca_file: str = declare("")
    """PEM file of the trusted CA certificates. Default: the system's (stage two) and Java's (stage
    one)."""
    ssl_certificate_file: str = declare("")
    """PEM file of the client certificate and its chain, for mutual TLS."""
    ssl_key_file: str = declare("")
    """PEM file of its private key, PKCS #8, not encrypted."""

    def __repr__(self) -> str:
        """Without secrets, because printed settings show this."""
        return f"Security({self.security_protocol}, {self.sasl_mechanism or 'no SASL'})"

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL: a name and a password, or a token."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_oauth(self) -> bool:
        """Whether they authenticate with a token of an OAuth token endpoint."""
        return self.has_sasl and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def has_iam(self) -> bool:
        """Whether they authenticate with a token that is signed with AWS credentials."""
        return self.has_sasl and self.sasl_mechanism == "AWS_MSK_IAM"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def way(self) -> Way:
        """The way in which clients authenticate."""
        if not self.has_sasl:
            return Way(())
        return WAYS.get(self.sasl_oauth_grant if self.has_oauth else self.sasl_mechanism, PASSWORD)

    @property
    def decided_by(self) -> str:
        """The setting that says which way this is."""
        if not self.has_sasl or not self.sasl_mechanism:
            return "security_protocol"
        is_set = self.has_oauth and "sasl_oauth_grant" in self.list_set("sasl_")
        return "sasl_oauth_grant" if is_set else "sasl_mechanism"

    def list_set(self, kind: str) -> list[str]:
        """The settings of a kind, `sasl_` or `ssl_`, that are set."""
        return [
            name
            for name, default in DEFAULTS.items()
            if name.startswith(kind) and getattr(self, name) != default
        ]

    def list_unused(self) -> list[str]:
        """Those that are set, and of which protocol, mechanism and grant take no notice."""
        used = (*self.way.needs, *self.way.takes)
        return [
            *(name for name in self.list_set("sasl_") if name not in used),
            *(() if self.has_tls else self.list_set("ssl_")),
        ]

    def override(self, own: Mapping[str, str]) -> Security:
        """These settings with a candidate's own in their place. Of the others it takes over what
        its protocol and mechanism use.
        """
        own_values: dict[str, Any] = _drop_empty(own)
        merged = replace(self, **own_values)
        unused = {*merged.list_unused(), *(() if PAIR.isdisjoint(own_values) else PAIR)}
        empty: dict[str, Any] = {name: DEFAULTS[name] for name in unused - own_values.keys()}
        return replace(merged, **empty) if own_values else self

    def build_librdkafka_options(self) -> dict[str, str]:
        """For confluent-kafka's clients."""
        options: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.has_sasl:
            options["sasl.mechanism"] = self._kafka_mechanism
        if self.has_oauth:
            options |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.sasl_oauth_token_url,
                "sasl.oauthbearer.scope": self.sasl_oauth_scope,
                "sasl.oauthbearer.extensions": self.sasl_oauth_extensions,
                "https.ca.location": self.sasl_oauth_ca_file,
                **self._build_grant_options(),
            }
        elif self.has_sasl and not self.has_iam:
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
                "sasl.mechanism": self._kafka_mechanism,
                "sasl.jaas.config": self._build_jaas(),
            }
        if self.has_sasl and self.sasl_mechanism in TOKEN_HANDLERS:
            options["sasl.login.callback.handler.class"] = TOKEN_HANDLERS[self.sasl_mechanism]
        if self.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
        if self.has_tls and self.ssl_ca_file:
            options |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": Path(self.ssl_ca_file).read_text(encoding="utf-8"),
            }
        if self.has_tls and self.ssl_certificate_file:
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(self.ssl_certificate_file).read_text(
                    encoding="utf-8"
                ),
                "ssl.keystore.key": Path(self.ssl_key_file).read_text(encoding="utf-8"),
            }
        return {f"kafka.{name}": value for name, value in options.items()}

    @property
    def _kafka_mechanism(self) -> str:
        return "OAUTHBEARER" if self.has_iam else self.sasl_mechanism

    def _build_grant_options(self) -> dict[str, str]:
        if self.sasl_oauth_grant == "azure-imds":
            return {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
        if self.sasl_oauth_grant == "jwt-bearer":
            return {
                "sasl.oauthbearer.grant.type": JWT_BEARER,
                "sasl.oauthbearer.assertion.private.key.file": self.sasl_oauth_key_file,
                "sasl.oauthbearer.assertion.claim.iss": self.sasl_username,
                "sasl.oauthbearer.assertion.claim.sub": self.sasl_username,
                "sasl.oauthbearer.assertion.claim.aud": self.sasl_oauth_audience
                or self.sasl_oauth_token_url,
            }
        return {
            "sasl.oauthbearer.client.id": self.sasl_username,
            "sasl.oauthbearer.client.secret": self.sasl_password,
        }

    def _build_jaas(self) -> str:
        values = {"username": self.sasl_username, "password": self.sasl_password}
        if self.sasl_mechanism in TOKEN_HANDLERS:
            names = (*self.way.needs, *self.way.takes)
            values = {name: getattr(self, name) for name in names}
            values |= {
                name: Path(file).read_text(encoding="utf-8")
                for name, file in values.items()
                if file and name.endswith("_file")
            }
        options = " ".join(f"{name}={_quote(value)}" for name, value in values.items() if value)
        return f"{LOGIN_MODULES[self.sasl_mechanism]} required {options};"


DEFAULTS: dict[str, str] = {field.name: str(field.default) for field in fields(Security)}
"""Of each setting, by the last part of its name."""


def _drop_empty(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _quote(value: str) -> str:
    """As Kafka's JAAS text is read: java.io.StreamTokenizer, which takes a backslash and a quote
    with a backslash before them, and an escape for the end of a line.
    """
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "")
    return '"' + text.replace("\n", "\\n") + '"'
