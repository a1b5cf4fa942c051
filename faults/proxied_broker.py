"""A broker that can be reached in two ways: directly, and through a proxy.

A Kafka client asks the first broker it meets for the addresses of all brokers, and connects to those. So a proxy stays in between only if
the broker advertises it: the broker has a second listener, PROXIED, which is advertised with the proxy's port. All else, the broker's talk
with itself (transaction markers, the controller) and a test's own questions, goes past the proxy.
"""

from __future__ import annotations

from pathlib import Path

from faults.proxy import Proxy
from reo.demo.broker import Broker, free_port


def make_proxied_broker(folder: Path, jars: Path) -> tuple[Broker, Proxy]:
    """A broker and the proxy in front of it, neither of them started; settings of the broker may still be added."""
    proxy = Proxy(free_port())
    broker = Broker(folder, jars)
    direct, through = f"PLAINTEXT://127.0.0.1:{broker.port}", "PROXIED://127.0.0.1:"
    broker.settings |= {  # the last of several lines for one key counts (java.util.Properties)
        "listeners": f"{direct},{through}{proxy.upstream_port},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": f"{direct},{through}{proxy.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return broker, proxy
