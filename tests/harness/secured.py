"""Brokers that demand something: one listener for each way in, and certificates of our own
authority.

The listener without security stays for the judge and for the broker itself.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.harness.broker_classes import compile_classes
from tests.harness.kafka import ROOT, UNFENCED, Cluster
from tests.harness.token_server import USER, Tokens
from tools.demo.broker import Broker, free_port

PASSWORD = 'pass"word\\ of 1_000'
"""Quotes, a backslash and a blank: what text formats get wrong."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "ENCRYPTED": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
    "DEMANDING": "SASL_PLAINTEXT",
}
EXTENSIONS = "logicalCluster=lkc-1,identityPoolId=pool-2=a"
"""What the listener DEMANDING takes (`broker_java`)."""
REAUTHENTICATION_MS = 60_000
"""At most so long is a connection of that listener good for, and not longer than its token: then
the broker closes it (KIP-368).
"""


class Certificates:
    """An authority, what it has issued, one of its own for the token server, and one that nobody
    trusts; all of it in PEM files.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        authority, stranger = trustme.CA(), trustme.CA()
        self.authority, self.stranger = folder / "ca.pem", folder / "stranger.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        stranger.cert_pem.write_to_path(str(self.stranger))
        past = datetime.now(UTC) - timedelta(days=1)
        self.server = _write_key_and_chain(
            folder / "server", authority.issue_cert("localhost", "127.0.0.1")
        )
        self.token_authority = folder / "token-ca.pem"
        token_authority = trustme.CA()
        token_authority.cert_pem.write_to_path(str(self.token_authority))
        self.token_server = _write_key_and_chain(
            folder / "token-server", token_authority.issue_cert("localhost")
        )
        self.elsewhere = _write_key_and_chain(
            folder / "elsewhere", authority.issue_cert("elsewhere.example")
        )
        self.expired = _write_key_and_chain(
            folder / "expired",
            authority.issue_cert("localhost", not_before=past - timedelta(days=9), not_after=past),
        )
        client = authority.issue_cert("alice.example")
        self.certificate, self.key = folder / "client-certificate.pem", folder / "client-key.pem"
        self.certificate.write_bytes(_chain(client))
        self.key.write_bytes(_key(client))


def _write_key_and_chain(path: Path, issued: trustme.LeafCert) -> Path:
    """Key and chain in one file, as Kafka's PEM key store wants it."""
    path.write_bytes(_key(issued) + _chain(issued))
    return path


def _key(issued: trustme.LeafCert) -> bytes:
    """As PKCS #8."""
    return load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def _chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems)


class Secured:
    """A single-node cluster with a listener for each way in; `cluster` is the way without
    security.
    """

    def __init__(self, folder: Path, certificates: Certificates, tokens: Tokens) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        keys = tokens.keys.as_uri()
        broker = Broker(
            folder,
            ROOT / "jars" / "broker",
            java_options=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}",),
            class_path=(compile_classes(folder / "classes"),),
        )
        broker.settings = self._settings(broker, certificates) | {
            "sasl.oauthbearer.jwks.endpoint.url": keys
        }
        broker.settings |= UNFENCED
        self.cluster = Cluster(broker.start().wait())
        # one at a time: a user may be named once in a request
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            self.cluster.admin.alter_user_scram_credentials([wanted])[USER].result()

    def at(self, listener: str) -> str:
        """The address of a listener, by the name in its certificate."""
        return f"localhost:{self.ports[listener]}"

    def _settings(self, broker: Broker, certificates: Certificates) -> dict[str, str]:
        ways = {
            "PLAINTEXT": f"127.0.0.1:{broker.port}",
            **{name: f"localhost:{port}" for name, port in self.ports.items()},
        }
        advertised = ",".join(f"{name}://{address}" for name, address in ways.items())
        stores = {
            "TLS": certificates.server,
            "MUTUAL": certificates.server,
            "ENCRYPTED": certificates.server,
            "EXPIRED": certificates.expired,
            "ELSEWHERE": certificates.elsewhere,
        }
        settings = {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                [
                    "PLAINTEXT:PLAINTEXT",
                    "CONTROLLER:PLAINTEXT",
                    *(f"{name}:{way}" for name, way in LISTENERS.items()),
                ]
            ),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        }
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        modules = {
            "plain": f'{PLAIN} required user_{USER}="{quoted}";',
            "scram-sha-256": f"{SCRAM} required;",
            "scram-sha-512": f"{SCRAM} required;",
            "oauthbearer": f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";',
        }
        for name, store in stores.items():
            prefix = f"listener.name.{name.lower()}.ssl"
            settings |= {
                f"{prefix}.keystore.type": "PEM",
                f"{prefix}.keystore.location": str(store),
                f"{prefix}.truststore.type": "PEM",
                f"{prefix}.truststore.location": str(certificates.authority),
            }
        for name in ("encrypted", "open", "demanding"):
            settings |= {
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": module.replace("\\", "\\\\")
                for mechanism, module in modules.items()
            }
            settings[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = (
                OAUTH_VALIDATOR
            )
        demanding = "listener.name.demanding.oauthbearer"
        settings[f"{demanding}.sasl.server.callback.handler.class"] = "reo.test.DemandingValidator"
        settings[f"{demanding}.connections.max.reauth.ms"] = str(REAUTHENTICATION_MS)
        return settings
