"""`reo lag`: how far the copy is behind: each stage, per partition and in total, for scripts and
alerts. `reo.progress.partition_progress` defines the figures.

With `--max-records` or `--max-seconds` the exit code tells whether the copy is further behind than
that: in records for all partitions together, in seconds for the partition with the longest lag. A
lag that was not measured is within no limit.
"""

from __future__ import annotations

from common import source_pool
from common.errors import DestinationTruncated, FrontierLost, LagsBehind, TopicMissing
from common.kafka import permissions
from common.routes import name_some
from common.settings import Settings
from reo.progress.partition_progress import PartitionProgress, describe_gone, sum_lags
from reo.progress.progress_snapshot import SnapshotReader
from reo.report import format_table, print_json

TITLES = "topic|partition|stage one|seconds|stage two|seconds|both|seconds"


def format_text(partitions: list[PartitionProgress]) -> str:
    """A table; the last line is the total."""
    rows = [[*row.source, *row.lags.list_cells()] for row in partitions]
    total = ["total", "", *sum_lags(partitions).list_cells()]
    return format_table(TITLES, [*rows, total], numbers_from=1)


def check_limits(
    partitions: list[PartitionProgress], max_records: int | None, max_seconds: float | None
) -> None:
    """LagsBehind when the lag exceeds a limit. With a limit, also an error when the lag is not
    known: TopicMissing without partitions, FrontierLost where nothing tells how far the copy is;
    and DestinationTruncated where the copy is gone.
    """
    if max_records is None and max_seconds is None:
        return
    if not partitions:
        raise TopicMissing(
            "the lag cannot be measured: no source topic matches what is to be copied. Correct"
            " source.topic, topics or --topic"
        )
    if gone := describe_gone(partitions):
        raise DestinationTruncated(
            f"{gone}. The service copies it again when it starts, or copies the next record"
        )
    lag, exceeded = sum_lags(partitions).both, []
    if max_records is not None and lag.records > max_records:
        exceeded.append(f"{lag.records} records, more than --max-records {max_records}")
    if max_seconds is not None and (lag.seconds or 0) > max_seconds:
        exceeded.append(f"{lag.seconds:.1f} seconds, more than --max-seconds {max_seconds:g}")
    if exceeded:
        raise LagsBehind(
            f"the copy is behind by {' and by '.join(exceeded)}. `reo status` shows which stage"
            " waits, and whether it moves"
        )
    if not_begun := [str(row.source) for row in partitions if row.frontier is None]:
        raise FrontierLost(
            f"the lag cannot be measured: the copy has no frontier for {name_some(not_begun)}."
            " Start the service, or run `reo recover` when it is lost"
        )


def run_command(
    settings: Settings, as_json: bool, max_records: int | None, max_seconds: float | None
) -> int:
    """The command: exit code 0; with a limit, 36 when the lag exceeds it, and another one when the
    lag is not known, or the copy is gone.
    """
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(settings, "lag")
    partitions = SnapshotReader(settings).take_snapshot().partitions
    if as_json:
        rows = [
            row.source._asdict() | row.lags.to_dict() | {"destination_gone": bool(row.gone_topic)}
            for row in partitions
        ]
        print_json({"partitions": rows, "total": sum_lags(partitions).to_dict()})
    else:
        gone = describe_gone(partitions)
        print(format_text(partitions) + (f"\n{gone}: all of it counts" if gone else ""))
    check_limits(partitions, max_records, max_seconds)
    return 0
