"""A broker's disk that loses what was written last, as one that was restored from a snapshot
does.
"""

from __future__ import annotations

import shutil
import subprocess

from tests.harness.spark_cluster import freeze, thaw
from tools.demo.broker import Broker


def keep_disk(broker: Broker) -> None:
    """Keep the broker's disk as it is now. The broker stands still meanwhile: else a file that it
    writes anew and renames could be gone when it is copied.
    """
    assert broker.process
    freeze(broker.process.pid)
    subprocess.run(["cp", "-a", broker.folder / "data", broker.folder / "kept"], check=True)
    thaw(broker.process.pid)


def set_disk_back(broker: Broker) -> None:
    """Set the disk of a broker that is down back to what was kept."""
    shutil.rmtree(broker.folder / "data")
    subprocess.run(["cp", "-a", broker.folder / "kept", broker.folder / "data"], check=True)
