"""TLS handshakes with a cluster's listeners, by the standard library: they tell why librdkafka does
not connect, where it does not say so itself.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

PROBE_S = 5.0


def explain_failed_verification(bootstrap_servers: str, ca_file: str) -> str:
    """What is wrong with a broker's certificate, where librdkafka says only that it could not be
    verified; empty if nothing is. `ca_file` is empty for the system's CA certificates.
    """
    context = ssl.create_default_context(cafile=ca_file or None)
    for address, failed in _try_handshakes(bootstrap_servers, context):
        if isinstance(failed, ssl.SSLCertVerificationError):
            return f"{address}: {failed.verify_message}"
    return ""  # another failure is not about the certificate, and known already


def has_tls_listener(bootstrap_servers: str) -> bool:
    """Whether one of these addresses answers a TLS handshake, whatever its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return any(failed is None for _, failed in _try_handshakes(bootstrap_servers, context))


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
