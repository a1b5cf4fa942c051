"""A host whose own name has no address, as a container can have one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.kafka import ROOT
from tools.demo import fair_share

HOST_WITHOUT_ADDRESS = [
    "unshare",
    "--map-root-user",
    "--uts",
    "sh",
    "-c",
    'hostname name-without-address.invalid && exec "$@"',
    "sh",
]
"""A command that runs another one."""
START = """
from common.settings import load
from replicator.spark import session
environment = {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_TOPIC": "t"}
environment["REO_DESTINATION_BOOTSTRAP_SERVERS"] = "b:1"
session.start_session(load(environment), 1).stop()
"""


def test_a_host_name_without_an_address() -> None:
    """Stage one's JVM starts: nothing that it needs is at this host's name."""
    if subprocess.run([*HOST_WITHOUT_ADDRESS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a host name of its own cannot be given to a process here (unshare)")
    command = [*HOST_WITHOUT_ADDRESS, sys.executable, "-c", START]
    fair_share.run(command, timeout_s=120, check=True, cwd=ROOT)
