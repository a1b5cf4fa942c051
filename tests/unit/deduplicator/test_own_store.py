"""A destination of a user's own: what its page's example promises, and a class that cannot be
used. With workers on a real broker: `tests/broker/test_own_destination.py`.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock
from common.errors import RecordRefused, SettingsInvalid, StageFailed, TopicsUnfit
from common.frontier import Frontier
from common.routes import Route, TopicPartition
from common.settings import Settings, load, user_code
from deduplicator import own_destination
from deduplicator.destination import Output
from deduplicator.own_destination import (
    NotOwner,
    Position,
    Setup,
    StoreClient,
    StoredRecord,
    Unavailable,
)
from deduplicator.partition import Partition
from deduplicator.postgresql import PostgresqlStore
from deduplicator.postgresql.store import check_routes
from deduplicator.stored_destination import StoredDestination
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.harness.own_store import open_store, write_example
from tests.unit.common.settings.test_settings import GOOD

PROXY, COPY, SOURCE = (TopicPartition(topic, 0) for topic in ("t-proxy", "t", "s"))


class Posted:
    """A destination without positions; `answers` are what the calls raise, or None."""

    def __init__(self, setup: Setup, answers: list[Exception | None] | None = None) -> None:
        self.setup = setup
        self.answers = answers or []
        self.records: list[StoredRecord] = []

    def commit(self, records: list[StoredRecord], _: dict[TopicPartition, Position]) -> None:
        """Keep them."""
        error = self.answers.pop(0) if self.answers else None
        if error:
            raise error
        self.records += records


def test_postgresql_without_its_package_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package is an extra: the error says how to install it."""
    for name in [name for name in sys.modules if name.startswith("deduplicator.postgresql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    settings = build_settings(REO_DESTINATION_CLASS="deduplicator.postgresql:PostgresqlStore")
    with pytest.raises(SettingsInvalid, match=r"extra `postgresql`"):
        StoreClient(settings, "test")


def build_settings(name: str = "Posted", **changes: str) -> Settings:
    """Of a class here."""
    return load(GOOD | {"REO_DESTINATION_CLASS": f"{__name__}:{name}"} | changes)


def test_an_earlier_owner_stores_nothing(tmp_path: Path) -> None:
    """The example keeps the protocol's promise: after `take_over` by another instance a commit is
    refused, and nothing of it is stored.
    """
    write_example(tmp_path)
    record = StoredRecord(*COPY, *SOURCE, 5, b"k", None, [], 1)
    first, second = open_store(tmp_path), open_store(tmp_path)
    for store in (first, second):
        store.prepare([])
    first.take_over([PROXY])
    assert first.read_positions({"t-proxy"}) == {}
    first.commit([record], {PROXY: Position(1, "one")})
    second.take_over([PROXY])
    assert second.read_positions({"t-proxy"}) == {PROXY: Position(1, "one")}
    assert second.read_positions({"other"}) == {}
    with pytest.raises(NotOwner):
        first.commit([record._replace(source_offset=6)], {PROXY: Position(2, "two")})
    assert second.last_source_offset(COPY) == 5
    assert second.read_positions({"t-proxy"}) == {PROXY: Position(1, "one")}


def test_a_class_without_positions_has_to_be_asked_for() -> None:
    """Exactly once needs four methods; the error names those that are missing, and the setting with
    which they are not needed.
    """
    with pytest.raises(SettingsInvalid) as refused:
        user_code.check_user_code(build_settings())
    assert (
        "it has no take_over, read_positions, last_source_offset. Add what is missing, or set"
        " destination.guarantee=at-least-once" in str(refused.value)
    )
    user_code.check_user_code(build_settings(REO_DESTINATION_GUARANTEE="at-least-once"))
    with pytest.raises(SettingsInvalid, match=r"it has no commit\. Add what is missing$"):
        user_code.check_user_code(build_settings("Path", REO_DESTINATION_GUARANTEE="at-least-once"))


def test_an_instance_is_given_its_secret_and_shows_it_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in the text of its setup, nor in the error of a class that repeats it."""
    given = build_settings(REO_DESTINATION_CONNECTION="s3cret", REO_DESTINATION_OPTIONS='{"a": 1}')
    setup = StoreClient(given, "test", read_only=True).store.setup  # type: ignore[attr-defined]
    assert (setup.connection, setup.options, setup.read_only) == ("s3cret", {"a": 1}, True)
    assert "s3cret" not in repr(setup) + repr(given)

    def refuse(_: Posted, setup: Setup) -> None:
        raise ValueError(f"cannot use {setup.connection}")

    monkeypatch.setattr(Posted, "__init__", refuse)
    with pytest.raises(SettingsInvalid, match=r"ValueError: cannot use \(secret\)"):
        StoreClient(given, "test")


def test_a_store_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once; a command gives up after its time."""
    now_s = 100.0
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(clock, "sleep", sleep)
    answers: list[Callable[[], int]] = []

    def answer() -> int:
        assert not client.is_answering() or len(answers) == 3
        return answers.pop(0)()

    def fail() -> int:
        raise Unavailable("closed")

    client = StoreClient(build_settings(), "test", waits.append, patience_s=2)
    answers += [fail, fail, lambda: 7]
    with caplog.at_level(logging.WARNING, own_destination.__name__):
        assert client.ask("reading", answer) == 7
    assert len(caplog.records) == 1
    assert waits == [0.0, math.inf, math.inf, 0.0]
    assert client.is_answering()
    with pytest.raises(Unavailable, match="closed"):
        client.ask("reading", fail)
    assert now_s > 102


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NotOwner("fenced"), StageFailed),
        (Unavailable("closed"), TransactionFailed),
        (RecordRefused("too large"), RecordRefused),
        (None, None),
    ],
)
def test_the_group_is_told_only_what_is_stored(
    answer: Exception | None, error: type[Exception] | None
) -> None:
    """Its offsets are committed after the store's commit has returned, or else not at all."""
    given = build_settings(REO_DESTINATION_GUARANTEE="at-least-once")
    client, told = StoreClient(given, "test"), list[Any]()
    store = cast(Posted, client.store)
    store.answers = [answer]
    destination = StoredDestination(client, told.append)
    destination.begin()
    output = destination.write(COPY, [(b"k", None, None, 1)], SOURCE, [7], Output(-1, 0))
    assert output == Output(7, 0)
    offsets = [ClientTopicPartition(*PROXY, 3, "f")]
    destination.send_offsets(offsets, None)
    if error:
        with pytest.raises(error):
            destination.start_commit()
        assert (told, store.records) == ([], [])
        return
    destination.start_commit()
    assert (told, store.records) == (
        [offsets],
        [StoredRecord("t", 0, "s", 0, 7, b"k", None, [], 1)],
    )


def test_a_mapping_keeps_the_offset_of_each_record() -> None:
    """Consecutive records for one partition are a group; groups have the offsets of their
    records.
    """
    client = StoreClient(build_settings(REO_DESTINATION_GUARANTEE="at-least-once"), "test")
    destination = StoredDestination(client, lambda _: None)
    frontier = Frontier(4, 1, "1d" * 8, 1, "own", -1, 0)
    partition = Partition(PROXY, Route("s", "t", "t-proxy", "a:b"), 0, frontier)
    partition.partitioner = lambda _: ()
    decisions = partition.get_decisions()
    decisions.records = [(key, None, None, 1) for key in (b"a", b"b", b"c", b"d")]
    decisions.source_offsets = [5, 7, 8, 10]
    one, other = TopicPartition("t", 1), TopicPartition("t", 2)
    groups = ((one, 0, 1), (other, 1, 1), (other, 1, 3), (one, 3, 4))
    decisions.partitioned_records = [
        (tp, decisions.records[begin:end]) for tp, begin, end in groups
    ]
    destination.begin()
    partition.write(destination)
    destination.send_offsets([partition.prepare_commit()], None)
    destination.start_commit()
    assert [
        (record.partition, record.source_offset, record.key)
        for record in cast(Posted, client.store).records
    ] == [(1, 5, b"a"), (2, 7, b"b"), (2, 8, b"c"), (1, 10, b"d")]


# PostgreSQL, without a server


def test_positions_of_earlier_versions_are_known() -> None:
    """They name what stands for the destination: with another name, all would be copied again."""
    assert PostgresqlStore.identity == "postgresql"


@pytest.mark.parametrize(
    ("connection", "options", "words"),
    [
        ("s3cret", {}, "a connection string of libpq is expected"),
        ("", {}, "a connection string of libpq is expected"),
        ("host=x", {"schema": ""}, "schema: a name of 1 to 63 bytes"),
        ("host=x", {"shema": "a"}, "the option of PostgreSQL is schema, not shema"),
    ],
)
def test_what_postgresql_cannot_use_is_refused(
    connection: str, options: dict[str, Any], words: str
) -> None:
    """Before it connects, and without the secret."""
    with pytest.raises(ValueError, match=words) as refused:
        PostgresqlStore(Setup("a", options, connection, "c", 1, True, lambda _: None))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (Route("t", "x" * 64, "t-proxy"), "is longer than 63 bytes"),
        (Route("t", "reo_frontier", "t-proxy"), "is the table with the frontiers"),
        (Route("t", "c", "t-proxy", "3"), "a table has one source topic and no mapping"),
        (Route("t", "c", "t-proxy", shared=True), "a table has one source topic and no mapping"),
    ],
)
def test_what_no_table_can_hold_is_refused(route: Route, words: str) -> None:
    """By a start, and by `reo check`."""
    with pytest.raises(TopicsUnfit, match=words):
        check_routes([route])
