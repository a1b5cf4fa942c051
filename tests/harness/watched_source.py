"""A source partition and its intermediate partition as stage one's control asks for them, without
brokers: what is there, the leader epoch, and a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock
from common.envelope import Head
from common.errors import ReoError, SourceTruncated
from common.frontier import Frontier
from common.kafka import partition_offsets, source_topics, visible_records
from common.kafka.partition_offsets import EndOffset, GroupCommit
from common.kafka.topics import Topic
from common.lag_gauges import LagReporter
from common.routes import Route, TopicPartition
from replicator.runs import last_record_check
from replicator.runs.clients import Clients
from replicator.runs.end_reasons import Event
from replicator.runs.last_record_check import LastCopied
from replicator.runs.run import Plan
from replicator.runs.snapshot import QUIET_S
from replicator.runs.watch import Watch
from tests.harness.last_record import make_last_record

EPOCH = 3 << 20 | 5
ROUTE = Route("orders", "copy", "copy-proxy")
SOURCE, HERE = TopicPartition("orders", 0), TopicPartition("copy-proxy", 0)
TOPIC = Topic("orders", "id", 1, "cluster")
SOURCE_ADMIN, DESTINATION_ADMIN = object(), object()


@dataclass
class WatchedSource:
    """Both sides of the run with EPOCH; `use` puts it in the place of brokers."""

    records: dict[int, bool] = field(default_factory=dict)
    """The source's offsets, and whether a reader sees them."""
    leader_epoch: int | None = 1
    open_from: int | None = None
    """The offset at which an open transaction begins."""
    frontier: int = 9
    last_copied: int | None = None
    """The offset of the last copied record; None when that is at the frontier."""
    frontier_epoch: int = EPOCH
    gap: int | None = None
    position: int = 5
    """Stage two's, on the intermediate partition."""
    intermediate_beginning: int = 0
    intermediate_end: int | ReoError = 5
    now_s: float = 1000.0
    has_commit: bool = True
    statements: list[tuple[int, int]] = field(default_factory=list)
    """What was said to be empty: the first offset and the last one."""
    before_look: Callable[[], None] = lambda: None
    """Called before the source's records are read."""
    after_look: Callable[[], None] = lambda: None
    """Called when they were read, before the next answer about offsets."""
    before_answer: Callable[[], None] = lambda: None
    """Called before the source's ends are answered."""
    looks: list[int] = field(default_factory=list)
    """The offsets from which its records were read."""
    compared: list[int] = field(default_factory=list)
    """The offsets of the last copied records that were compared with the source."""

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(source_topics, "describe_sources", lambda *_: {ROUTE: TOPIC})
        monkeypatch.setattr(partition_offsets, "list_beginning_offsets", self.list_beginnings)
        monkeypatch.setattr(partition_offsets, "list_end_offsets", self.list_ends)
        monkeypatch.setattr(partition_offsets, "list_stable_ends", self.list_stable_ends)
        monkeypatch.setattr(partition_offsets, "read_stable_ends", self.list_stable_ends)
        monkeypatch.setattr(visible_records, "read_first_records", self.read_first_records)
        monkeypatch.setattr(last_record_check, "check_source_history", self.compare)

    def build_plan(self, start: int = 10) -> Plan:
        """The plan of the run, from the offset on that follows the frontier."""
        settings = SimpleNamespace(failover=False, destination_cluster=None)
        return Plan(
            EPOCH,
            cast(Any, settings),
            {ROUTE: TOPIC},
            {ROUTE: "1d" * 8},
            {HERE: start},
            {},
            {SOURCE: LastCopied(make_last_record(start - 1), start - 1)},
        )

    def build_clients(self) -> Clients:
        """Those that ask it."""
        return cast(
            Clients,
            SimpleNamespace(
                source_admin=SOURCE_ADMIN,
                destination_admin=DESTINATION_ADMIN,
                source_reader=None,
                destination_reader=None,
                beat=lambda: None,
                empty_envelopes=self,
            ),
        )

    def build_watch(self, quiet_s: float = QUIET_S) -> Watch:
        """What follows the run."""
        plan = self.build_plan()
        return Watch(plan.settings, self.build_clients(), plan, LagReporter("a stage"), quiet_s)

    def read_commits(self) -> dict[TopicPartition, GroupCommit]:
        """The group's commit."""
        last = self.frontier if self.last_copied is None else self.last_copied
        frontier = Frontier(
            self.frontier,
            self.frontier_epoch,
            "1d" * 8,
            1,
            "id",
            -1,
            0,
            self.gap,
            make_last_record(last) if last >= 0 else None,
        )
        return {HERE: GroupCommit(self.position, frontier)} if self.has_commit else {}

    def observe(self, watch: Watch, seconds: float = 0.5) -> Event | None:
        """One more snapshot after so many seconds."""
        self.now_s += seconds
        return watch.observe([HERE], self.read_commits())

    def observe_for(self, watch: Watch, seconds: float) -> list[Event | None]:
        """Two snapshots a second; stops at the first event."""
        events: list[Event | None] = []
        for _ in range(int(2 * seconds)):
            events.append(self.observe(watch))
            if events[-1] is not None:
                break
        return events

    def pass_seconds(self, seconds: float) -> None:
        """As `clock.sleep`."""
        self.now_s += seconds

    def write(self, heads: Mapping[TopicPartition, Head], _: float) -> None:
        """As `EmptyEnvelopes`."""
        for head in heads.values():
            assert (head.epoch, head.source_identity, head.record_count) == (EPOCH, "1d" * 8, 0)
            if (head.after + 1, head.through) not in self.statements:
                self.statements.append((head.after + 1, head.through))

    @property
    def end(self) -> int:
        """The source's next offset."""
        return max(self.records, default=-1) + 1

    def list_beginnings(
        self, _: object, asked: Collection[TopicPartition], *__: object
    ) -> dict[TopicPartition, int]:
        """Of these partitions."""
        beginnings = {HERE: self.intermediate_beginning, SOURCE: min(self.records, default=0)}
        return {tp: beginnings[tp] for tp in asked}

    def list_ends(self, client: object, *_: object, **more: Any) -> dict[TopicPartition, int]:
        """Of the partition that this client asks for."""
        if client is DESTINATION_ADMIN:
            if isinstance(self.intermediate_end, ReoError):
                raise self.intermediate_end
            return {HERE: self.intermediate_end}
        return {SOURCE: self.stable_end if more.get("committed_only") else self.end}

    @property
    def stable_end(self) -> int:
        """The source's last stable offset."""
        return self.end if self.open_from is None else self.open_from

    def list_stable_ends(self, *_: object) -> dict[TopicPartition, EndOffset]:
        """Of the source."""
        self.before_answer()
        return {SOURCE: EndOffset(self.stable_end, self.leader_epoch)}

    def read_first_records(
        self,
        _: object,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *__: object,
    ) -> dict[TopicPartition, Any]:
        """The first visible record of the source from an offset on; no answer where there is none
        and it ends before these.
        """
        if not begins:
            return {}
        self.looks += begins.values()
        self.before_look()
        records: dict[TopicPartition, Any] = {
            tp: next(
                (
                    SimpleNamespace(offset=lambda offset=offset: offset)
                    for offset, is_visible in sorted(self.records.items())
                    if is_visible and begin <= offset < self.stable_end
                ),
                None,
            )
            for tp, begin in begins.items()
        }
        is_behind = self.stable_end < ends[SOURCE]
        self.after_look()
        return {tp: record for tp, record in records.items() if record or not is_behind}

    def compare(
        self,
        _: object,
        __: object,
        ___: object,
        copied: Mapping[TopicPartition, LastCopied],
        *____: object,
    ) -> set[TopicPartition]:
        """As `last_record_check.check_source_history`: SourceTruncated when another offset is at
        its place. A record that is gone was deleted.
        """
        for last in copied.values():
            self.compared.append(last.last_record.source_offset)
            if not self.records.get(last.last_record.source_offset, True):
                raise SourceTruncated("the last copied record is gone")
        return set(copied)
