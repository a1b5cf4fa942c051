"""The kinds of faults, with their weights when the faults of a schedule are drawn."""

from __future__ import annotations

TORN = "torn transaction"
DESTINATION_RECREATED = "destination recreated"
INTERMEDIATE_RECREATED = "intermediate topic recreated"
PARTITION_ADDED = "partition added"
FILTER_CHANGED = "filter changed"
PAUSED = "topic paused"
INVISIBLE_LOST = "invisible source records lost"
FAULT_WEIGHTS: dict[str, int] = {
    "SIGKILL": 8,
    "SIGKILL of the JVM": 2,
    "SIGSTOP": 5,
    "SIGSTOP of the JVM": 1,
    "SIGTERM of a process": 1,
    "answer lost": 6,
    "request lost": 3,
    "request late": 4,
    "source away": 2,
    "destination away": 3,
    "EndTxn not answered": 3,
    "group coordinator away": 2,
    "envelope lost": 4,
    "envelope late": 4,
    "task repeated": 5,
    "executor frozen": 4,
    "second stage one": 2,
    "worker added": 2,
    "worker removed": 1,
    "records committed at the source are deleted": 2,
    "source compacted": 1,
    PARTITION_ADDED: 1,
    PAUSED: 3,
    "source replica behind": 2,
    "intermediate records purged": 3,
    "newest intermediate records lost": 3,
    "single intermediate records lost": 3,
    "intermediate records repeated": 3,
    "intermediate records reordered": 3,
    "intermediate topic compacted": 1,
    INTERMEDIATE_RECREATED: 5,
    DESTINATION_RECREATED: 1,
    "unread source records deleted": 1,
    "newest source records lost": 2,
    INVISIBLE_LOST: 1,
    "source recreated": 1,
    "newest destination records lost": 2,
    TORN: 1,
}
"""Every kind of fault, with its weight when kinds are drawn."""
INTERMEDIATE_FAULTS = (
    "intermediate records purged",
    "newest intermediate records lost",
    "single intermediate records lost",
    "intermediate records repeated",
    "intermediate records reordered",
    INTERMEDIATE_RECREATED,
)
FAULT_FAMILIES = (
    (
        "envelope lost",
        "envelope late",
        "task repeated",
        "executor frozen",
        "source compacted",
        "SIGKILL",
    ),
    (
        "answer lost",
        "request lost",
        "request late",
        "EndTxn not answered",
        "group coordinator away",
        "SIGSTOP",
        "worker added",
    ),
    (*INTERMEDIATE_FAULTS, "envelope late", "SIGKILL"),
    (*INTERMEDIATE_FAULTS, "second stage one", "SIGSTOP"),
)
"""Kinds that concern the same part of the service: the rule, transactions, and lost records of the
intermediate topic, with and without another run.
"""
FAULTS_THAT_OPEN_GAPS = frozenset(
    {
        "envelope late",
        "envelope lost",
        "intermediate topic compacted",
        *INTERMEDIATE_FAULTS,
    }
)
SOURCE_FAULTS = frozenset(
    {
        "records committed at the source are deleted",
        "source compacted",
        PARTITION_ADDED,
        "unread source records deleted",
        "newest source records lost",
        INVISIBLE_LOST,
        "source recreated",
    }
)
"""Not drawn with several candidates: after such a fault, a candidate has other records than the
others.
"""
CANDIDATE_FAULT_WEIGHTS = {
    "candidate not fed": 3,
    "leaders of a candidate changed": 3,
    "candidate recreated": 6,
}
FRONTIERS_DELETED = "frontiers deleted"
TOPIC_ADDED = "topic added"
EXCLUSIVE_FAULTS = frozenset(
    {
        "unread source records deleted",
        "newest source records lost",
        INVISIBLE_LOST,
        "source recreated",
        "newest destination records lost",
        DESTINATION_RECREATED,
        INTERMEDIATE_RECREATED,
        "intermediate topic compacted",
        "candidate recreated",
        FILTER_CHANGED,
        TORN,
        FRONTIERS_DELETED,
    }
)
"""Faults that can end the service, or change what has to be copied. A schedule has at most one of
them; otherwise nobody could say which exit code is right. It can have the same one again, if that
is one of REPEATABLE_FAULTS.
"""
REPEATABLE_FAULTS = frozenset({INTERMEDIATE_RECREATED, INVISIBLE_LOST})
