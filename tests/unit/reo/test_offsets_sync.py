"""A round of `reo offsets sync` without brokers: one group after the other; with brokers:
`tests/broker/test_offsets_sync.py`.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from common.errors import (
    ClusterUnreachable,
    MoveRefused,
    OffsetUntranslatable,
    ReoError,
    StageFailed,
    TopicMissing,
)
from common.kafka import source_topics, topics
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from reo.migration import offsets_sync
from reo.migration.group_translator import GroupTranslator
from reo.migration.offsets_sync import OffsetsSync
from tests.unit.reo.test_offset_translation import COPY, GROUP, FakeClusters, FakeGroup


def test_nothing_is_committed_to_a_topic_that_was_recreated_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The round's first group is translated, or its place is remembered; then the topic is another
    one, in which that offset is another record. The proofs are forgotten.
    """
    clusters = FakeClusters(monkeypatch)
    sync = OffsetsSync(clusters.settings, GROUP)
    (group,) = sync.sync()
    assert (group.skipped, clusters.at_destination.committed) == (None, {COPY: 1})
    translate = sync.translator.translate

    def translate_and_recreate(*arguments: Any) -> Any:
        clusters.at_destination.committed = {}
        rows = translate(*arguments)
        clusters.destination = Topic(COPY.topic, "new-id", 1, "copy-cluster")
        return rows

    monkeypatch.setattr(sync.translator, "translate", translate_and_recreate)
    (group,) = sync.sync()
    assert clusters.at_destination.committed == {}
    assert (group.rows, isinstance(group.skipped, OffsetUntranslatable)) == ([], True)
    assert "was deleted, or deleted and recreated" in str(group.errors[0])
    assert sync._proved == {}


@pytest.mark.parametrize("error", [StageFailed, ClusterUnreachable, MoveRefused])
def test_a_group_that_is_refused_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, error: type[ReoError]
) -> None:
    """Whatever the error of one group: it is reported, and the next one is translated."""
    clusters, names = FakeClusters(monkeypatch), ["a", "b", "c"]
    monkeypatch.setattr(offsets_sync, "list_groups", lambda *_: names)
    at_destination = {name: FakeGroup({}) for name in names}

    def refuse(_: object) -> None:
        raise error("no")

    monkeypatch.setattr(at_destination["b"], "commit_forward", refuse)
    monkeypatch.setattr(
        GroupTranslator, "open_destination_group", lambda _, name: at_destination[name]
    )
    groups = OffsetsSync(clusters.settings, ".*").sync()
    assert [type(group.skipped) for group in groups] == [type(None), error, type(None)]
    assert [at_destination[name].committed for name in names] == [{COPY: 1}, {}, {COPY: 1}]


def test_a_cluster_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each group: the round ends."""
    clusters = FakeClusters(monkeypatch)
    sync = OffsetsSync(clusters.settings, ".*")

    def fail(*_: object) -> None:
        raise ClusterUnreachable("away")

    monkeypatch.setattr(clusters.at_destination, "commit_forward", fail)
    look_up, looked_up = topics.look_up, list[int]()

    def look_up_once(*arguments: Any) -> Any:
        looked_up.append(1)
        return look_up(*arguments) if len(looked_up) <= 2 else fail()

    monkeypatch.setattr(topics, "look_up", look_up_once)
    with pytest.raises(ClusterUnreachable):
        sync.sync()


def test_a_copy_that_was_deleted_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that reads two topics, of which one has no copy any more: the other is translated and
    committed, and the error names the missing one. Without its own offset there is nothing to say.
    """
    clusters, gone = FakeClusters(monkeypatch), TopicPartition("gone", 0)
    sources = {
        **source_topics.describe_sources(clusters.settings, cast(Any, None)),
        Route("gone", "gone-copy", "gone-reo"): Topic("gone", "gone-id", 1, "source-cluster"),
    }
    monkeypatch.setattr(source_topics, "describe_sources", lambda *_: sources)
    clusters.at_source.committed[gone], clusters.ends[gone] = 5, 9
    sync = OffsetsSync(clusters.settings, GROUP)
    (group,) = sync.sync()
    assert clusters.at_destination.committed == {COPY: 1}
    (error,) = group.errors
    assert isinstance(error, TopicMissing)
    assert "the destination topic gone-copy does not exist" in str(error)
    del clusters.at_source.committed[gone]
    (group,) = sync.sync()
    assert group.errors == []
