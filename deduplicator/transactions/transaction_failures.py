"""Which error a failed transaction ends with: one that the worker goes on after, from the committed
frontier (`TransactionFailed`), or one that ends the process.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    Fenced,
    HangingTransaction,
    ReoError,
    StageFailed,
    Stop,
)


class TransactionFailed(Exception):
    """The transaction may be committed or aborted, so read the frontier again."""


def is_unfinished(error: KafkaError) -> bool:
    """Whether the only error of a call is that its time was over: the client goes on with it, and
    takes the same call again.
    """
    return error.code() == KafkaError._TIMED_OUT and error.retriable()


def is_fatal(error: KafkaError, translated: Exception) -> bool:
    """Whether the client can do nothing more. While records are written, an error that says so has
    no flag: the call fails because the client has failed before (`_FATAL`), or reports the broker's
    refusal of a fenced producer as it is.
    """
    return error.fatal() or error.code() == KafkaError._FATAL or isinstance(translated, Fenced)


def classify_fatal(translated: Exception) -> Exception:
    """The error to raise when the client can do nothing more."""
    return (
        translated
        if isinstance(translated, AccessRefused) or not isinstance(translated, Stop)
        else StageFailed(str(translated))
    )


def classify_undone(error: KafkaError, translated: Exception) -> Exception:
    """The error to raise when the transaction is aborted, or its producer discarded."""
    # the client does not know yet that the topic has more partitions; a new client reads its
    # metadata
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        return TransactionFailed(str(translated))
    if (
        isinstance(translated, ReoError)
        and isinstance(translated, Stop)
        and not isinstance(translated, ClusterUnreachable | HangingTransaction)
    ):
        return translated
    return TransactionFailed(str(translated))
