"""Every metric of the stages, by name: their processes write them, the supervisor serves them on
one port, with its own (`reo.service.health`).

prometheus-client's multiprocess mode is the channel: each process maps a file of its own, so the
counts of a killed process are not lost. The supervisor sets PROMETHEUS_MULTIPROC_DIR for its
children before they import this module. Health is read from the same place (`reo.service.health`):
gauges say that a process is alive, whether it is ready, and what it waits for (`common.liveness`).

Labels are bounded: stages, topics, partitions, workers and fixed words.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

PARTITION = ("topic", "partition")


def _newest(name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge of which the newest value counts, of the processes that live."""
    return Gauge(name, meaning, labels, multiprocess_mode="livemostrecent")


def _alive(name: str, meaning: str, labels: Sequence[str]) -> Gauge:
    """A gauge of a process's liveness. Its mode gives it a small file of its own: one live process
    has these labels, so that its value is the largest.
    """
    return Gauge(name, meaning, labels, multiprocess_mode="livemax")


LIVENESS_FILES = "gauge_livemax_*.db"
RECORDS_IN = Counter(
    "reo_records_in",
    "Source records read. Stage one: source offsets that the frontier has passed while a run lived,"
    " markers and aborted records included. Stage two: records in envelopes.",
    ("stage", *PARTITION),
)
RECORDS_OUT = Counter(
    "reo_records_out",
    "What was written. Stage one: envelopes, as the ends of the intermediate topics show them."
    " Stage two: source records, in committed transactions.",
    ("stage", *PARTITION),
)
DROPPED = Counter(
    "reo_records_dropped",
    "Source records in envelopes that stage two did not write to the destination topic: written"
    " again (duplicate, stale), after a gap (gap), left out by filter.function (filtered, parked),"
    " from the destination itself (cycle), or of an earlier version of reo (old format).",
    ("reason", *PARTITION),
)
FILTERED = Counter(
    "reo_records_filtered",
    "Source records that a function of filter.function left out.",
    ("filter",),
)
TRANSACTIONS = Counter(
    "reo_transactions",
    "Transactions of stage two: committed, aborted, unknown.",
    ("outcome",),
)
TRANSACTION_ERRORS = Counter(
    "reo_transaction_errors", "Calls of stage two's producers that failed.", ("error",)
)
TRANSACTION_RECORDS = Histogram(
    "reo_transaction_records",
    "Records of a committed transaction.",
    buckets=(1, 10, 100, 1000, 5000, 10_000, 20_000, 50_000, 90_000),
)
TRANSACTION_SECONDS = Histogram(
    "reo_transaction_seconds",
    "From begin to commit.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
)
QUEUE_FULL = Counter(
    "reo_producer_queue_full",
    "Times that stage two waited because its producer's queue was full.",
)
REREADS = Counter(
    "reo_frontier_rereads",
    "Times that stage two read its frontiers again after a failure.",
)
COPY_SECONDS = Histogram(
    "reo_copy_seconds",
    "From a record's timestamp to its commit at the destination: the first of each partition in a"
    " transaction.",
    ("topic",),
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600),
)
TORN = Counter(
    "reo_torn_records",
    "Records found at the destination although their frontier was not committed; the frontier was"
    " moved over them.",
    PARTITION,
)
LAG = _newest(
    "reo_lag_records",
    "What waits for a stage, as last known. Stage one: source offsets after the frontier, control"
    " records and aborted records included. Stage two: envelopes that it has not read.",
    ("stage", *PARTITION),
)
LAG_SECONDS = _newest(
    "reo_lag_seconds",
    "Upper bound of the time that the first waiting record of a stage has waited (stage one: since"
    " its start at most, until it has caught up once); it grows while a server does not answer."
    " `reo lag` reads that record's timestamp instead.",
    ("stage", *PARTITION),
)
SOURCE_END = _newest(
    "reo_source_end_offset",
    "End of a source partition for read_committed readers: its last stable offset.",
    PARTITION,
)
SOURCE_OPEN = _newest(
    "reo_source_open_transaction_seconds",
    "How long an open transaction of the source has blocked a partition: its last stable offset"
    " does not move and is below its end. 0: none.",
    PARTITION,
)
FRONTIER = _newest(
    "reo_frontier_offset",
    "The frontier: the source offset up to which everything is copied, inclusive.",
    PARTITION,
)
EPOCH = _newest("reo_run_epoch", "Epoch of stage one's current run.")
RUNS = Counter(
    "reo_runs",
    "Runs of stage one that ended: failed, superseded, gap, stalled, truncated, grown, switched,"
    " lost, lagging, finished, stopped.",
    ("reason",),
)
CLIENT_ERRORS = Counter(
    "reo_client_errors",
    "Errors of a cluster that clients report outside of requests: brokers down, connections"
    " refused.",
    ("cluster", "error"),
)
CANDIDATE = ("candidate",)
SOURCE_ERRORS = Counter(
    "reo_source_errors",
    "Requests to a source candidate that failed.",
    (*CANDIDATE, "error"),
)
SOURCE_REFUSED = Counter(
    "reo_source_refused",
    "Times that a source candidate was refused because of its records or partitions; the log says"
    " why.",
    CANDIDATE,
)
SOURCE_UNHEALTHY = Counter(
    "reo_source_unhealthy", "Times that no source candidate could be copied from."
)
SOURCE_SWITCHES = Counter(
    "reo_source_switches", "Changes to this source candidate from another one.", CANDIDATE
)
SOURCE_CONNECTIONS = Counter(
    "reo_source_connections", "Runs that were planned on this source candidate.", CANDIDATE
)
SOURCE_HIGH_WATERMARK = _newest(
    "reo_source_high_watermark",
    "Sum of a source candidate's last stable offsets; not its high watermark, despite the name.",
    CANDIDATE,
)
SOURCE_LAGGED = Counter(
    "reo_source_lag_threshold_exceeded",
    "Times that this source candidate, being copied from, was too far behind another.",
    CANDIDATE,
)
REBALANCES = Counter("reo_rebalances", "Partitions assigned, revoked or lost.", ("event",))
PURGED = _newest(
    "reo_purged_offset",
    "Envelopes below this offset of the intermediate topic were deleted after their commit.",
    PARTITION,
)
COMPILED = _newest(
    "reo_deduplicator_compiled",
    "1 when a worker of stage two uses the compiled path, 0 when Python does its work.",
    ("worker",),
)
HEARTBEAT = _alive(
    "reo_heartbeat_seconds",
    "Unix time of a process's last heartbeat, in seconds.",
    ("stage", "worker"),
)
READY = _alive(
    "reo_ready",
    "1 when a process is ready: its servers answer, and it copies, or no record waits.",
    ("stage", "worker"),
)
WAITING = _alive(
    "reo_waiting",
    "1 for the reason for which a process is not ready.",
    ("stage", "worker", "reason"),
)
HALTED = _alive(
    "reo_route_halted",
    "1 for a source topic of which nothing is read: paused (`reo pause`), or stopped by an error"
    " (`on_stop=route`).",
    ("topic", "state"),
)

DROP_REASONS = ("duplicate", "stale", "gap", "filtered", "cycle", "parked", "old format")
