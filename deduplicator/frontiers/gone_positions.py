"""Positions that no longer exist in the intermediate topic: the partition goes on at the end of
what the topic has now, with a raised epoch.

What was unread there is written again only by a run that has read the frontier with that epoch; any
other run could leave it out.

Where the topic was deleted and created again, a frontier can say so late: its id is compared at a
start and once a second (`deduplicator.intermediate_watch`). If the new topic has the position too,
the worker can have read records of the new one after unread ones of the old: that is a stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

from common import run_epochs, runtime
from common.errors import FrontierLost
from common.frontier import Frontier, RuleState
from common.kafka import intermediate_records, partition_offsets
from common.kafka.topics import Topic
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.frontiers.committed_frontiers import ConsumerGroup, TransactionUndecided
from deduplicator.partitions import AssignedPartition

log = logging.getLogger(__name__)


def move_to_end(
    consumer_group: ConsumerGroup,
    assigned: Mapping[TopicPartition, AssignedPartition],
    intermediates: Mapping[str, Topic],
    partitions_with_gaps: Container[TopicPartition],
    committed_epochs: Sequence[int],
    clock: Callable[[], float],
) -> set[TopicPartition]:
    """Set every partition whose position does not exist, or that lacks records after it, to the end
    of its intermediate partition, with a raised epoch; returns those. All get the id of the
    intermediate topic that they are in now. FrontierLost when records can have been left out;
    TransactionUndecided when the topic was created again meanwhile.
    """
    beginnings = partition_offsets.list_beginning_offsets(consumer_group.admin, assigned)
    stable_ends = partition_offsets.list_stable_ends(consumer_group.admin, assigned)
    ends = {tp: end.offset for tp, end in stable_ends.items()}
    recreated, intermediates = _find_certainly_recreated(consumer_group, assigned, intermediates)
    for tp in recreated:
        if 0 < assigned[tp].next_offset <= ends[tp]:
            _refuse_recreated(consumer_group.settings, tp, assigned[tp].next_offset)
    outside = recreated | {
        tp
        for tp, state in assigned.items()
        if not beginnings[tp] <= state.next_offset <= ends[tp] or tp in partitions_with_gaps
    }
    _check_ends_are_of(consumer_group, intermediates, {tp.topic for tp in outside})
    for tp, state in assigned.items():
        if state.frontier.leader_epoch is None:  # of an earlier version of reo
            state.frontier = replace(state.frontier, leader_epoch=stable_ends[tp].leader_epoch)
        state.frontier = replace(
            state.frontier, intermediate_topic_id=intermediates[tp.topic].topic_id or None
        )
    newest = intermediate_records.read_last_origins(
        consumer_group.reader, {tp: (beginnings[tp], ends[tp]) for tp in outside}
    )
    epoch = run_epochs.create_higher_epoch(
        int(clock() * 1000),
        [*committed_epochs, *(origin.epoch for origin in newest.values())],
    )
    for tp in outside:
        state = assigned[tp]
        if state.next_offset >= 0:
            log.warning(
                "%(tp)s: offset %(offset)d is gone from the intermediate topic; going on at"
                " its end with epoch %(epoch)d",
                {"tp": tp, "offset": state.next_offset, "epoch": epoch},
            )
        state.frontier = replace(
            raise_epoch(state.frontier, epoch), leader_epoch=stable_ends[tp].leader_epoch
        )
        state.next_offset = ends[tp]
    return outside


def _find_certainly_recreated(
    consumer_group: ConsumerGroup,
    assigned: Mapping[TopicPartition, AssignedPartition],
    intermediates: Mapping[str, Topic],
) -> tuple[set[TopicPartition], Mapping[str, Topic]]:
    """As `find_recreated`, with the topics as they were described last. No topic is another one on
    one broker's word: a broker can be behind.
    """
    recreated = find_recreated(assigned, intermediates)
    if recreated:
        runtime.sleep(partition_offsets.ASK_AGAIN_S)
        names = {tp.topic for tp in recreated}
        intermediates = {**intermediates, **consumer_group.describe_intermediates(names)}
        recreated = find_recreated(assigned, intermediates)
    return recreated, intermediates


def _check_ends_are_of(
    consumer_group: ConsumerGroup, intermediates: Mapping[str, Topic], names: Collection[str]
) -> None:
    """TransactionUndecided when these topics have other ids after their ends were listed: a new
    topic's end with an old one's id would be a position that both have had.
    """
    if names and consumer_group.describe_intermediates(names) != {
        name: intermediates[name] for name in names
    }:
        raise TransactionUndecided(
            f"{', '.join(sorted(names))}: created again, or changed, meanwhile"
        )


def _refuse_recreated(settings: Settings, tp: TopicPartition, next_offset: int) -> None:
    """FrontierLost, unless the settings say that this does not matter."""
    if settings.deduplicator.without_frontier == "append":
        log.warning(
            "%s was deleted and created again: records of %s can be left out of the copy",
            tp.topic,
            tp,
        )
        return
    accept = (
        "set deduplicator.without_frontier=append for one start"
        if destination_kind.is_outside_kafka(settings)
        else "`reo recover` finds the frontier from the data"
    )
    raise FrontierLost(
        f"{tp.topic} was deleted and created again, and both topics have had records of"
        f" {tp} before offset {next_offset}: records can be left out of the copy",
        f"Compare it with its source (`reo verify`). If nothing is missing, {accept}; otherwise,"
        " or where these commands refuse, copy to another destination",
    )


def raise_epoch(frontier: Frontier, epoch: int) -> Frontier:
    """The same source offset in a raised epoch, without a link: the frontier for a position at the
    end of the intermediate topic.
    """
    return replace(frontier, rule=RuleState(frontier.rule.frontier, epoch, None))


def find_recreated(
    assigned: Mapping[TopicPartition, AssignedPartition], intermediates: Mapping[str, Topic]
) -> set[TopicPartition]:
    """The partitions whose intermediate topic is another one than their frontier names; one that
    does not exist now is none.
    """
    return {
        tp
        for tp, state in assigned.items()
        if tp.topic in intermediates and is_recreated(state.frontier, intermediates[tp.topic])
    }


def is_recreated(frontier: Frontier, intermediate: Topic) -> bool:
    """Whether the position is in another intermediate topic of this name. Brokers before 2.8 have
    no topic ids, and frontiers of earlier versions name none.
    """
    known, now = frontier.intermediate_topic_id, intermediate.topic_id
    return bool(known and now and known != now)
