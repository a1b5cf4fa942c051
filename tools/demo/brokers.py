"""`make brokers`: two brokers on this machine, each a cluster of its own, for a copy of one's own
topic. They run until Ctrl-C; then what was written to them is gone.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tools.demo.broker import Broker

JARS = Path(__file__).parents[2] / "jars" / "broker"
SOURCE_PORT, DESTINATION_PORT = 19092, 29092
"""Fixed, so that pages can name them."""


def is_taken(port: int) -> bool:
    """Whether something of this machine listens at it: a client would take that for the broker."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def run_brokers(stack: ExitStack, ports: dict[str, int]) -> None:
    """Start a broker for each name, say where they are, and return when one has ended by itself."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reo-brokers-")))
    brokers = [Broker(folder / name, JARS, port=port) for name, port in ports.items()]
    for broker in brokers:
        stack.callback(broker.kill)
        broker.start()
    for name, broker in zip(ports, brokers, strict=True):
        print(f"{name:<12} {broker.wait().address}", flush=True)
    print("Ctrl-C ends both, and their records are gone.", flush=True)
    while all(broker.running for broker in brokers):
        time.sleep(0.5)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make brokers")
    parser.add_argument("source", type=int, nargs="?", default=SOURCE_PORT)
    parser.add_argument("destination", type=int, nargs="?", default=DESTINATION_PORT)
    ports = vars(parser.parse_args())
    for port in ports.values():
        if is_taken(port):
            message = f"port {port} is taken: end what listens there, or choose two others with"
            print(f"{message} PORTS='19093 29093'", file=sys.stderr)
            return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both ends unwind the stack
    with ExitStack() as stack:
        try:
            run_brokers(stack, ports)
            print("a broker has ended by itself", file=sys.stderr)
        except KeyboardInterrupt:
            return 0
        except RuntimeError as failed:
            print(failed, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
