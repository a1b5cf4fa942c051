"""A broker with two listeners: one direct, and one behind a proxy.

A Kafka client asks a bootstrap server for the addresses of all brokers, and connects to those. So
its connections use the proxy only if the broker advertises it: the broker has a second listener,
PROXIED, which is advertised with the proxy's port. All other requests, those between brokers
(transaction markers, the controller) and those of the tests, do not use the proxy.
"""

from __future__ import annotations

from pathlib import Path

from tools.demo.broker import Broker, free_port
from tools.faults.proxy import Proxy


def make_proxied_broker(folder: Path, jars: Path) -> tuple[Broker, Proxy]:
    """A broker and its proxy, neither of them started; broker settings can still be added."""
    proxy = Proxy(free_port())
    broker = Broker(folder, jars)
    direct, through = f"PLAINTEXT://127.0.0.1:{broker.port}", "PROXIED://127.0.0.1:"
    broker.settings |= {  # the last of several lines for one key counts (java.util.Properties)
        "listeners": (
            f"{direct},{through}{proxy.upstream_port},CONTROLLER://127.0.0.1:{broker.controller_port}"
        ),
        "advertised.listeners": f"{direct},{through}{proxy.port}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    }
    return broker, proxy
