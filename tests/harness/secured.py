"""Brokers that demand something: one listener for each way in, certificates of our own authority,
and a server that gives tokens.

The listener without security stays for the judge and for the broker itself.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.harness.kafka import ROOT, UNFENCED, Cluster
from tools.demo.broker import Broker, free_port

USER, PASSWORD = "alice", 'pass"word\\ of 1_000'
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
}


class Certificates:
    """An authority, what it has issued, and another authority that nobody trusts; all of it in PEM
    files.
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


class Tokens:
    """Who issues tokens (RS256), and the file with the key by which brokers know them (RFC
    7517).
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        n, e = (
            _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            for number in (numbers.n, numbers.e)
        )
        self.keys = folder / "jwks.json"
        self.keys.write_text(
            json.dumps(
                {"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": n, "e": e}]}
            )
        )

    def issue(self) -> str:
        """One for USER, good for an hour."""
        now = int(time.time())
        parts = (
            {"alg": "RS256", "kid": "1", "typ": "JWT"},
            {"sub": USER, "iat": now, "exp": now + 3600, "scope": "kafka"},
        )
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64(self._key.sign(text.encode(), PKCS1v15(), SHA256()))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


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
        for name in ("encrypted", "open"):
            settings |= {
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": module.replace("\\", "\\\\")
                for mechanism, module in modules.items()
            }
            settings[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = (
                OAUTH_VALIDATOR
            )
        return settings


@contextmanager
def token_server(tokens: Tokens, secret: str) -> Iterator[str]:
    """The URL of a server that gives tokens to who knows the secret (RFC 6749, section 4.4)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            basic = base64.b64decode(
                (self.headers.get("Authorization") or "Basic ").removeprefix("Basic ")
            ).decode()
            good = basic == f"{USER}:{secret}"
            token = tokens.issue()
            body = json.dumps(
                {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
                if good
                else {"error": "invalid_client"}
            ).encode()
            self.send_response(200 if good else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
