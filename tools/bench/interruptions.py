"""How long a topic waits while the plan of the service changes: another topic appears, gets
partitions, is paused, is resumed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from confluent_kafka.admin import AdminClient, NewPartitions

from tools.bench.contenders import Reo
from tools.bench.latency import WARM_S, Arrival, run_steady_load
from tools.bench.testbed import Testbed

RATE, PARTITIONS = 200, 4
WATCHED_S = 20
"""For so long after a change: new topics are looked for every few seconds."""


def find_longest_wait_ms(arrivals: Sequence[Arrival], begin: float, end: float) -> float:
    """The longest time between two arrivals in this period, and up to its bounds."""
    times = [begin, *(one.at for one in arrivals if begin <= one.at <= end), end]
    return 1000 * max(later - earlier for earlier, later in pairwise(times))


def measure_interruptions(testbed: Testbed, label: str) -> dict[str, float]:
    """For each change, the longest time in ms for which a reader of another topic, which gets RATE
    records a second, got none of them; `nothing` is the same without a change.
    """
    steady, other = f"{label}-steady", f"{label}-other"
    testbed.source.create_topic(steady, PARTITIONS)
    contender = Reo(testbed, f"^{label}-.*", label)
    admin = AdminClient({"bootstrap.servers": testbed.source.address, "log_level": 0})
    changes: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "topic": lambda: testbed.source.create_topic(other, 1),
        "partition": lambda: _add_partition(admin, other),
        "pause": lambda: _run_command(contender, "pause", other),
        "resume": lambda: _run_command(contender, "resume", other),
    }
    with run_steady_load(testbed, contender, steady, RATE, PARTITIONS) as reader:
        time.sleep(WARM_S)
        row = {}
        for name, change in changes.items():
            begin = time.time()
            change()
            time.sleep(WATCHED_S)
            row[f"{name}_ms"] = find_longest_wait_ms(reader.arrivals, begin, time.time())
    return row


def _run_command(contender: Reo, *arguments: str) -> None:
    """A command of reo, with the settings of this service."""
    subprocess.run(
        [sys.executable, "-m", "reo", *arguments],
        env=os.environ | contender.service.settings,
        check=True,
        capture_output=True,
    )


def _add_partition(admin: AdminClient, topic: str) -> None:
    """A second one."""
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
