"""A broker's disk that loses what was written last, as one that was restored from a snapshot
does.
"""

from __future__ import annotations

import shutil
import subprocess

from demo.broker import Broker


def keep_disk(broker: Broker) -> None:
    """Keep the broker's disk as it is now."""
    subprocess.run(["cp", "-a", broker.folder / "data", broker.folder / "kept"], check=True)


def set_disk_back(broker: Broker) -> None:
    """Set the disk of a broker that is down back to what was kept."""
    shutil.rmtree(broker.folder / "data")
    subprocess.run(["cp", "-a", broker.folder / "kept", broker.folder / "data"], check=True)
