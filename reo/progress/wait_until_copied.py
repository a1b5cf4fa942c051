"""Waits until everything is copied that the source has: `reo verify --wait`."""

from __future__ import annotations

import sys

from common import runtime, source_candidates
from common.errors import LagsBehind, TopicMissing
from common.kafka import permissions
from common.routes import TopicPartition
from common.settings import Settings
from reo.progress.lag import sum_lags
from reo.progress.snapshot import SnapshotReader

POLL_S = 0.5


def wait_until_copied(settings: Settings, timeout_s: float) -> dict[TopicPartition, int]:
    """Wait until everything is copied that the source has now; returns the offsets at which it ends
    now. LagsBehind after so long. A line on standard error says what is waited for, and whether the
    service runs.
    """
    settings = source_candidates.select_answering(settings)
    permissions.check_permissions(settings, "lag")
    snapshot_reader, deadline, is_told = (
        SnapshotReader(settings),
        runtime.monotonic() + timeout_s,
        False,
    )
    ends: dict[TopicPartition, int] = {}
    while True:
        try:
            partitions = snapshot_reader.take_snapshot().partitions
            ends = ends or {row.source: row.last_stable_offset for row in partitions}
            is_copied = all(
                row.copy_lag.records == 0 or row.stage_two_offset >= ends.get(row.source, 0)
                for row in partitions
            )
            state = f"{sum_lags(partitions)[2].records} records are not copied yet"
        except TopicMissing as missing:  # nothing is copied yet
            is_copied, state = False, str(missing)
        if is_copied:
            return ends
        is_over = runtime.monotonic() > deadline
        if is_over or not is_told:
            state += "" if _is_running(snapshot_reader) else "; stage two does not run"
        if is_over:
            raise LagsBehind(
                f"not copied within {timeout_s:g} s: {state}. Nothing was compared",
                "Start the service, or wait longer; `reo status` shows which stage waits",
            )
        if not is_told:
            print(f"waiting up to {timeout_s:g} s: {state}", file=sys.stderr, flush=True)
            is_told = True
        runtime.sleep(POLL_S)


def _is_running(snapshot_reader: SnapshotReader) -> bool:
    """Whether stage two's group has members; one that was killed counts until its session ends."""
    return bool(snapshot_reader.group.describe_members().partitions)
