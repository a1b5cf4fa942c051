"""A server that gives OAuth tokens, and the tokens: three grants, over HTTP or HTTPS, for brokers
that verify the signature.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

USER = "alice"
SCOPE, AUDIENCE, RESOURCE = "kafka", "https://tokens.example/", "api://reo"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Tokens:
    """Who issues tokens (RS256), and the file with the key by which brokers know them (RFC 7517);
    and the key with which a client signs assertions.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._key = rsa.generate_private_key(65537, 2048)
        self._client_key = rsa.generate_private_key(65537, 2048)
        self.client_key = folder / "client-key.pem"
        self.client_key.write_bytes(
            self._client_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
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

    def issue(self, lifetime_s: int) -> str:
        """One for USER."""
        now = int(time.time())
        parts = (
            {"alg": "RS256", "kid": "1", "typ": "JWT"},
            {"sub": USER, "iat": now, "exp": now + lifetime_s, "scope": SCOPE},
        )
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64(self._key.sign(text.encode(), PKCS1v15(), SHA256()))}"

    def is_asserted(self, assertion: str) -> bool:
        """Whether the client has signed this, for us, and not for ever."""
        text, _, signature = assertion.rpartition(".")
        try:
            self._client_key.public_key().verify(
                _decode(signature), text.encode(), PKCS1v15(), SHA256()
            )
        except InvalidSignature:
            return False
        claims = json.loads(_decode(text.split(".")[1]))
        now = time.time()
        return [claims[name] for name in ("iss", "sub", "aud")] == [USER, USER, AUDIENCE] and (
            claims["nbf"] <= now < claims["exp"] <= now + 301
        )


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class TokenServer:
    """What the server gives to whom."""

    tokens: Tokens
    secret: str
    lifetime_s: int
    url: str = ""
    issued: list[tuple[str, bool]] = field(default_factory=list)
    """For each token the grant, and whether a JVM asked."""

    @property
    def azure_url(self) -> str:
        """As of the metadata service of an Azure machine."""
        return f"{self.url}?api-version=2018-02-01&resource={RESOURCE}"

    def find_grant(self, headers: dict[str, str], query: str, form: str) -> str:
        """The grant by which a token is given, empty if none is."""
        asked = {name: values[0] for name, values in parse_qs(form or query).items()}
        if not form:
            is_good = headers.get("Metadata") == "true" and asked.get("resource") == RESOURCE
            return "azure-imds" if is_good else ""
        if asked.get("scope") != SCOPE:
            return ""
        if asked.get("grant_type") == JWT_BEARER:
            return "jwt-bearer" if self.tokens.is_asserted(asked["assertion"]) else ""
        basic = base64.b64decode(headers.get("Authorization", "Basic ").removeprefix("Basic "))
        return "client-credentials" if basic.decode() == f"{USER}:{self.secret}" else ""


@contextmanager
def serve_tokens(
    tokens: Tokens, secret: str, lifetime_s: int = 3600, certificate: Path | None = None
) -> Iterator[TokenServer]:
    """Such a server, with a certificate over HTTPS."""
    found = TokenServer(tokens, secret, lifetime_s)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer("")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())

        def answer(self, form: str) -> None:
            grant = found.find_grant(dict(self.headers.items()), urlsplit(self.path).query, form)
            if grant:
                found.issued.append((grant, "Java" in self.headers.get("User-Agent", "")))
            token = tokens.issue(found.lifetime_s)
            body = json.dumps(
                {"access_token": token, "token_type": "Bearer", "expires_in": found.lifetime_s}
                if grant
                else {"error": "invalid_grant" if "assertion=" in form else "invalid_client"}
            ).encode()
            self.send_response(200 if grant else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # the handshake in the handler's thread: a client that breaks it off stops nobody
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scheme = "https" if certificate else "http"
    found.url = f"{scheme}://localhost:{server.server_port}/token"
    try:
        yield found
    finally:
        server.shutdown()
