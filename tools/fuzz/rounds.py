"""Rounds of stage two over messages, without clients: what is written, round after round, as if
every transaction were committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from common import settings
from common.frontier import decode
from common.liveness import Liveness
from common.records import Consumed
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import Output
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.round_input import RoundInput
from deduplicator.transactions.transaction_limits import TransactionLimits
from deduplicator.unwrap import AcceptedEnvelope, Record, unwrap_records

ROUTE = Route("orders", "orders", "orders-proxy")
TRANSACTION_TIMEOUT_S = 60.0
ZERO_TIMESTAMP_MS = 1
ROUNDS_MAX = 2_000
"""More than an input has records: each round decides one or more."""
REQUIRED_SETTINGS = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
}


@cache
def _load_settings() -> Settings:
    """They replace timestamp 0, which librdkafka cannot write."""
    return settings.load(REQUIRED_SETTINGS | {"REO_DESTINATION_ZERO_TIMESTAMP": "one"})


class NoClients:
    """Stands for the consumer, which has these messages, and for the destination."""

    def __init__(self, messages: Iterable[Consumed], can_forward: bool) -> None:
        self.messages = list(messages)
        self.can_forward = can_forward
        self.written: dict[TopicPartition, list[Record]] = {}

    def consume(self, _: float, envelopes_max: int = 8) -> list[Consumed]:
        """As `Intermediate.consume`."""
        consumed, self.messages = self.messages[:envelopes_max], self.messages[envelopes_max:]
        return consumed

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        _: TopicPartition,
        __: Sequence[int],
        output: Output,
    ) -> Output:
        """As `Destination.write`."""
        self.written.setdefault(tp, []).extend(records)
        return output

    def forward(
        self,
        tp: TopicPartition,
        envelopes: Sequence[AcceptedEnvelope],
        zero_timestamp_ms: int | None,
    ) -> int:
        """As `Destination.forward`."""
        records = [
            record
            for envelope in envelopes
            for record in unwrap_records(envelope, envelope.read_records(), zero_timestamp_ms)
        ]
        self.written.setdefault(tp, []).extend(records)
        return len(records)


class Rounds:
    """Rounds with at most so many records, written as whole envelopes or one by one."""

    def __init__(
        self,
        messages: Iterable[Consumed],
        assigned: Iterable[Partition],
        records_max: int,
        can_forward: bool,
    ) -> None:
        self.clients = NoClients(messages, can_forward)
        self.partitions = Partitions()
        self.partitions.start(assigned)
        self.counts: dict[TopicPartition, Counter[str]] = {
            tp: Counter() for tp in self.partitions.assigned
        }
        clients = cast(Any, self.clients)
        self.input = RoundInput(
            _load_settings(),
            self.partitions,
            clients,
            clients,
            Liveness("fuzz"),
            TransactionLimits(records_max, TRANSACTION_TIMEOUT_S),
        )

    def list_written(self, tp: TopicPartition) -> list[Record]:
        """What was written of an intermediate partition."""
        return self.clients.written.get(ROUTE.get_destination(tp.partition), [])

    def run(self) -> None:
        """Until no message is left."""
        rounds = 0
        while self.clients.messages or self.input.undecided:
            rounds += 1
            assert rounds < ROUNDS_MAX, "stage two does not come to an end"
            self.input.consume(0)
            for partition in self.partitions.list_decided():
                partition.write(cast(Any, self.clients))
                text = partition.prepare_commit().metadata
                decisions = partition.on_commit_started()
                assert decode(text) == partition.frontier, f"nobody could read {text}"
                self.counts[partition.tp].update(decisions.dropped, consumed=decisions.consumed)
