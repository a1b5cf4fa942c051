"""The port of /metrics: on which addresses it answers, and what is said where it cannot."""

from __future__ import annotations

import errno
import os
import socket
from http.client import HTTPConnection
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import pytest

from common.errors import SettingsInvalid
from reo.service import health


def has_ipv6() -> bool:
    """Whether this machine has it on its loopback address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def open_server(folder: Path, address: str, port: int = 0) -> WSGIServer:
    """A server without processes."""
    return health.open_server(address, port, str(folder), list, lambda *_: {})


@pytest.mark.parametrize(
    ("address", "clients"),
    [
        ("", ["127.0.0.1", "::1"]),
        ("::", ["127.0.0.1", "::1"]),
        ("::1", ["::1"]),
        ("127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_it_answers_on_ipv4_and_ipv6(tmp_path: Path, address: str, clients: list[str]) -> None:
    """A pod may have IPv6 alone, and its probes use that."""
    if not has_ipv6():
        clients = [client for client in clients if ":" not in client]
        if not clients or ":" in address:
            pytest.skip("this machine has no IPv6")
    with open_server(tmp_path, address) as server:
        health.serve(server)
        for client in clients:
            asked = HTTPConnection(client, server.server_port, timeout=60)
            asked.request("GET", "/livez")
            assert asked.getresponse().status == 200
        server.shutdown()


def test_what_is_wrong_with_the_port_or_the_address_is_told_apart(tmp_path: Path) -> None:
    """Another port does not help where the address is another host's."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsInvalid, match=r"in use.*: set REO_METRICS_PORT to a free one$"):
            open_server(tmp_path, "127.0.0.1", port)
    with pytest.raises(
        SettingsInvalid, match=r"metrics\.address 192\.0\.2\.1 cannot .*: set REO_METRICS_ADDRESS"
    ):
        open_server(tmp_path, "192.0.2.1")
    refused = OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert health.find_remedy(refused, "--port") == "set --port to 1024 or more"
