"""The end of a run with `--stop-at-end`: up to which source offset nothing is left to copy."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import runtime
from common.errors import ClusterUnreachable, SourceTruncated
from common.frontier import Hole, Link, RuleState
from common.kafka import destination_contents, partition_offsets, topics, visible_records
from common.routes import TopicPartition
from reo.service.deduplicator_stop_at_end import has_copied_what_was_read
from replicator.read_up_to_writer import EmptyRange
from replicator.stop_at_end import Completion

SOURCE, INTERMEDIATE = TopicPartition("orders", 0), TopicPartition("orders-proxy", 0)


BEFORE = RuleState(30, 7, Link(30, 1, 1))


@pytest.mark.parametrize(
    ("now", "has_copied"),
    [
        pytest.param(BEFORE, True, id="as it was"),
        pytest.param(RuleState(30, 7, None), True, id="only the link is gone"),
        pytest.param(RuleState(33, 9, Link(33, 1, 4)), True, id="a newer run was copied"),
        pytest.param(RuleState(29, 9, Link(29, 1, 1)), False, id="it has moved back"),
        pytest.param(BEFORE._replace(hole=Hole(32, 33)), False, id="a hole is open"),
        pytest.param(RuleState(30, 9, None), False, id="records were deleted unread"),
    ],
)
def test_stage_two_alone_has_not_copied_what_it_left_out(now: RuleState, has_copied: bool) -> None:
    """The intermediate topic is read to its end each time."""
    commit, before = (
        SimpleNamespace(frontier=SimpleNamespace(rule=rule, destination_topic_id="id"))
        for rule in (now, BEFORE)
    )
    assert has_copied_what_was_read(cast("Any", commit), cast("Any", before)) is has_copied
    has_begun = now.hole is None and now.link is not None
    assert has_copied_what_was_read(cast("Any", commit), None) is has_begun, "no commit before"
    assert has_copied_what_was_read(cast("Any", commit), None, was_empty=True) is (now.hole is None)


NO_FAILOVER = SimpleNamespace(failover=False)


def make_clients() -> Any:
    """Those that nothing is asked of."""
    return SimpleNamespace(
        source_admin=None,
        source_reader=None,
        destination_admin=None,
        destination_reader=None,
        beat=lambda: None,
    )


class Writer:
    """Keeps what would be written to the intermediate topic."""

    def __init__(self) -> None:
        self.ranges: Mapping[TopicPartition, EmptyRange] = {}

    def write(self, _epoch: int, _: object, ranges: Mapping[TopicPartition, EmptyRange]) -> None:
        """As `ReadUpToWriter`."""
        self.ranges = ranges

    def flush(self) -> None:
        """As `ReadUpToWriter`."""


@pytest.mark.parametrize(
    ("end_now", "written"),
    [
        pytest.param(37, {INTERMEDIATE: EmptyRange(29, 37)}, id="as it was"),
        pytest.param(40, {INTERMEDIATE: EmptyRange(29, 37)}, id="it has grown"),
        pytest.param(35, {INTERMEDIATE: EmptyRange(29, 35)}, id="it lost records"),
        pytest.param(30, {}, id="it lost all that was not copied"),
    ],
)
def test_what_the_source_has_lost_is_not_counted_as_read(
    monkeypatch: pytest.MonkeyPatch, end_now: int, written: Mapping[TopicPartition, EmptyRange]
) -> None:
    """The source ended at 37 when the process started, and 30 is the first offset that is not
    copied. The offsets from its present end on will be those of other records.
    """
    monkeypatch.setattr(partition_offsets, "list_beginning_offsets", lambda *_: {SOURCE: 0})
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_: {SOURCE: end_now})
    writer = Writer()
    clients = SimpleNamespace(source_admin=None, read_up_to_writer=writer)
    unused = cast("Any", None)
    completion = Completion(
        SimpleNamespace(filter=SimpleNamespace(sql="")),
        cast("Any", clients),
        unused,
        unused,
        lambda: True,
    )
    completion.end_offsets = {INTERMEDIATE: 37}
    plan = SimpleNamespace(
        epoch=1,
        identities={},
        start_offsets={INTERMEDIATE: 30},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )
    completion.write_read_up_to(cast("Any", plan))
    assert writer.ranges == written


@pytest.mark.parametrize(
    ("start", "is_complete"),
    [
        pytest.param(30, True, id="as it was"),
        pytest.param(33, True, id="it has moved on"),
        pytest.param(0, False, id="it was moved back"),
    ],
)
def test_what_a_run_left_out_holds_from_where_it_began(
    monkeypatch: pytest.MonkeyPatch, start: int, is_complete: bool
) -> None:
    """A run with a filter began at 30, read to the end and wrote nothing. From a frontier that
    stage two has moved back since, there is more to read.
    """
    unused = cast("Any", None)
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_, **__: {SOURCE: 37})
    monkeypatch.setattr(visible_records, "find_first_visible", lambda *_: 0)
    monkeypatch.setattr(topics, "describe_sources", lambda *_: ())
    monkeypatch.setattr(destination_contents, "has_copied_records", lambda *_: True)
    rule = SimpleNamespace(frontier=start - 1)
    commits = {INTERMEDIATE: SimpleNamespace(frontier=SimpleNamespace(rule=rule))}
    completion = Completion(
        SimpleNamespace(filter=SimpleNamespace(sql="value is null")),
        make_clients(),
        cast("Any", SimpleNamespace(try_read_commits=lambda _: commits)),
        unused,
        lambda: True,
    )
    run = SimpleNamespace(
        has_written_nothing=lambda: True,
        plan=SimpleNamespace(start_offsets={INTERMEDIATE: 30}),
        source_partitions={INTERMEDIATE: SOURCE},
    )
    completion.note_finished_run(cast("Any", run), {SOURCE: 37})
    plan = SimpleNamespace(
        settings=NO_FAILOVER,
        sources=(),
        start_offsets={INTERMEDIATE: start},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )
    assert completion.is_complete(cast("Any", plan)) == is_complete


@pytest.mark.parametrize(
    ("frontier", "is_at_destination", "is_complete"),
    [
        pytest.param(29, True, True, id="as planned"),
        pytest.param(40, True, True, id="further"),
        pytest.param(29, False, False, id="the destination was recreated"),
        pytest.param(-1, True, False, id="stage two has begun again since the plan was made"),
        pytest.param(None, True, False, id="no answer"),
    ],
)
def test_a_frontier_counts_when_the_destination_has_what_it_says(
    monkeypatch: pytest.MonkeyPatch,
    frontier: int | None,
    is_at_destination: bool,
    is_complete: bool,
) -> None:
    """30 is the first offset that is not copied, says the plan, and the source ends there."""
    unused = cast("Any", None)
    monkeypatch.setattr(destination_contents, "has_copied_records", lambda *_: is_at_destination)
    monkeypatch.setattr(topics, "describe_sources", lambda *_: ())
    commits = (
        {}
        if frontier is None
        else {
            INTERMEDIATE: SimpleNamespace(
                frontier=SimpleNamespace(rule=SimpleNamespace(frontier=frontier))
            )
        }
    )
    completion = Completion(
        SimpleNamespace(filter=SimpleNamespace(sql="")),
        make_clients(),
        cast("Any", SimpleNamespace(try_read_commits=lambda _: commits)),
        unused,
        lambda: True,
    )
    completion.end_offsets = {INTERMEDIATE: 30}
    plan = SimpleNamespace(
        settings=NO_FAILOVER,
        sources=(),
        start_offsets={INTERMEDIATE: 30},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )
    assert completion.is_complete(cast("Any", plan)) == is_complete


@pytest.mark.parametrize("what", ["the source was recreated", "the source does not answer"])
def test_nothing_is_complete_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An empty new topic has nothing left to copy; another candidate may end sooner than the one
    that has died.
    """

    def find(*_: object) -> None:
        if what == "the source does not answer":
            raise ClusterUnreachable("no record for 10 s")

    monkeypatch.setattr(visible_records, "find_first_visible", find)
    monkeypatch.setattr(destination_contents, "has_copied_records", lambda *_: True)
    found = {"the topic": "new" if what == "the source was recreated" else "old"}
    monkeypatch.setattr(topics, "describe_sources", lambda *_: found)
    rule = SimpleNamespace(frontier=29)
    commits = {INTERMEDIATE: SimpleNamespace(frontier=SimpleNamespace(rule=rule))}
    completion = Completion(
        SimpleNamespace(filter=SimpleNamespace(sql="")),
        make_clients(),
        cast("Any", SimpleNamespace(try_read_commits=lambda _: commits)),
        cast("Any", None),
        lambda: True,
    )
    completion.end_offsets = {INTERMEDIATE: 30}
    plan = SimpleNamespace(
        settings=NO_FAILOVER,
        sources={"the topic": "old"},
        start_offsets={INTERMEDIATE: 30},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )
    assert not completion.is_complete(cast("Any", plan))


@pytest.mark.parametrize(
    ("ends", "has_failover", "found", "is_refused"),
    [
        pytest.param([36, 36], False, "old", True, id="it lost a record"),
        pytest.param([37], False, "old", False, id="it is as it was"),
        pytest.param([36, 37], False, "old", False, id="a leader that was replaced"),
        pytest.param([], True, "old", False, id="another candidate is behind"),
        pytest.param([0, 0], False, "new", False, id="recreated, which the next plan names"),
    ],
)
def test_a_source_that_loses_what_was_not_copied_has_no_end_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
    ends: list[int],
    has_failover: bool,
    found: str,
    is_refused: bool,
) -> None:
    """It ended at 37 when the process started, and 30 is the first offset that is not copied."""
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_: {SOURCE: ends.pop(0)})
    monkeypatch.setattr(partition_offsets, "refresh_metadata", lambda *_: None)
    monkeypatch.setattr(runtime, "sleep", lambda _: None)
    monkeypatch.setattr(visible_records, "find_first_visible", lambda *_: 30)
    monkeypatch.setattr(topics, "describe_sources", lambda *_: {"the topic": found})
    completion = Completion(
        SimpleNamespace(filter=SimpleNamespace(sql="")),
        make_clients(),
        cast("Any", None),
        cast("Any", None),
        lambda: True,
    )
    completion.end_offsets = {INTERMEDIATE: 37}
    plan = SimpleNamespace(
        settings=SimpleNamespace(
            failover=has_failover, source=SimpleNamespace(request_timeout_ms=1000)
        ),
        sources={"the topic": "old"},
        start_offsets={INTERMEDIATE: 30},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )
    if is_refused:
        with pytest.raises(SourceTruncated, match=r"ended at offset 37 .* ends at 36 now"):
            completion.is_complete(cast("Any", plan))
    else:
        assert not completion.is_complete(cast("Any", plan))
    assert not ends
