"""Lifecycles are tables: every pair of state and event is either in the table or a typed error that
changes nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from common.errors import Fenced, StageFailed
from common.kafka.partition_offsets import COMMIT_PARTITIONS_MAX
from common.liveness import Liveness
from deduplicator.transactions import producer_states
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.transactions.transactional_producer import TransactionalProducer
from replicator.runs import end_reasons

TABLES: list[tuple[str, Any]] = [("transaction", producer_states), ("run", end_reasons)]
PAIRS = [
    pytest.param(module, state, event, id=f"{name}: {state}, {event}")
    for name, module in TABLES
    for state in get_args(module.State)
    for event in get_args(module.Event)
]


@pytest.mark.parametrize(("module", "state", "event"), PAIRS)
def test_every_pair_leads_to_its_state_or_is_refused(module: Any, state: str, event: str) -> None:
    """Known pairs give the table's state; unknown ones raise RuntimeError, which names both, and
    the table stays as it is.
    """
    before = dict(module.NEXT)
    if (state, event) in module.NEXT:
        assert module.get_next_state(state, event) == module.NEXT[state, event]
    else:
        with pytest.raises(RuntimeError, match=f"{state!r} cannot take {event!r}"):
            module.get_next_state(state, event)
    assert before == module.NEXT


@pytest.mark.parametrize(("name", "module"), TABLES)
def test_a_table_has_only_states_and_events_that_are_declared_and_reaches_all(
    name: str, module: Any
) -> None:
    """No typing error in the table, no state without a way in, no event that nothing takes."""
    states, events = set(get_args(module.State)), set(get_args(module.Event))
    assert {state for state, _ in module.NEXT} | set(module.NEXT.values()) == states
    assert {event for _, event in module.NEXT} == events


def test_whatever_ends_a_run_leads_back_to_planning_or_to_the_end() -> None:
    """Healing is one thing, a new run from the frontier: no event leaves a run where neither is
    reachable.
    """
    reached = {"done"}
    while True:
        more = {
            state for (state, _), following in end_reasons.NEXT.items() if following in reached
        } - reached
        if not more:
            break
        reached |= more
    assert reached == set(get_args(end_reasons.State))
    assert not [event for (state, event) in end_reasons.NEXT if state == "done"]


def test_in_doubt_is_taken_everywhere_and_ends_in_a_new_producer() -> None:
    """A lost connection can happen in every state; the only way on is a producer that has to be
    initialised.
    """
    for state in get_args(producer_states.State):
        assert producer_states.get_next_state(state, "in doubt") == "new"
    assert [
        event for (state, event) in producer_states.NEXT if state == "new" and event != "in doubt"
    ] == ["initialised"]


class Client:
    """A producer that does what it is told; `fails` maps a call to the error that it raises."""

    def __init__(self, **fails: KafkaError) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> None:
            self.calls.append(name)
            if name in self.fails:
                raise KafkaException(self.fails[name])

        return call


OFFSETS = [TopicPartition("t", 0)]
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
ABORTABLE = KafkaError(KafkaError.REQUEST_TIMED_OUT, "abort", False, False, True)
FATAL = KafkaError(KafkaError._FENCED, "fenced", True)


def producer(**fails: KafkaError) -> tuple[TransactionalProducer, list[Client]]:
    """A producer over clients of the above kind, and the list of those it made."""
    made: list[Client] = []
    return (
        TransactionalProducer(
            lambda: made.append(Client(**fails)) or made[-1], 1.0, Liveness("test")
        ),
        made,
    )


def commit(one: TransactionalProducer) -> None:
    """Commit, and wait until it is known to be done."""
    one.start_commit()
    one.finish_commit()


def test_an_event_out_of_order_raises_before_the_client_is_called() -> None:
    """A commit without offsets is a defect of ours: the state stays, and the client has not heard
    of it.
    """
    one, made = producer()
    one.begin()
    with pytest.raises(RuntimeError):
        commit(one)
    assert (one.state, made[0].calls) == ("open", ["init_transactions", "begin_transaction"])


def test_a_commit_that_times_out_throws_the_producer_away() -> None:
    """The outcome is in doubt: no abort is tried, the next begin makes a new client and initialises
    it.
    """
    one, made = producer(commit_transaction=TIMED_OUT)
    one.begin()
    one.send_offsets(OFFSETS, None)
    with pytest.raises(TransactionFailed):
        commit(one)
    assert (one.state, one.client) == ("new", None)
    assert "abort_transaction" not in made[0].calls
    one.begin()
    assert (len(made), made[1].calls) == (2, ["init_transactions", "begin_transaction"])


@pytest.mark.parametrize(
    "refused",
    [
        KafkaError(KafkaError._FATAL),
        KafkaError(KafkaError._FENCED),
        KafkaError(KafkaError.INVALID_PRODUCER_EPOCH),
        KafkaError(KafkaError.PRODUCER_FENCED),
    ],
    ids=lambda error: error.name(),
)
def test_a_producer_that_is_fenced_while_it_writes_ends_the_process(refused: KafkaError) -> None:
    """These come without the flag for a fatal error. A producer that went on would take a new
    epoch, and fence the instance that has taken over.
    """
    one, made = producer()
    one.begin()
    failure = one.handle_failure(KafkaException(refused), "writing to t-0")
    assert isinstance(failure, StageFailed | Fenced)
    assert (one.client, len(made)) == (None, 1)
    assert "abort_transaction" not in made[0].calls


def test_a_commit_whose_thread_cannot_start_leaves_the_transaction_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent, so it can be aborted; nobody waits for an answer."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    one, made = producer()
    one.begin()
    one.send_offsets(OFFSETS, None)
    with monkeypatch.context() as patched:
        patched.setattr("common.clock.start_thread", refuse)
        with pytest.raises(RuntimeError, match="thread"):
            one.start_commit()
    one.finish_commit()
    assert one.state == "offsets sent"
    assert one.abort()
    assert made[0].calls[-1] == "abort_transaction"


@pytest.mark.parametrize(("lost", "is_waited_for"), [(0, False), (1, True)])
def test_offsets_that_were_sent_again_let_no_others_pass(lost: int, is_waited_for: bool) -> None:
    """A connection was lost before the commit: until the transaction is over, a first copy of its
    offsets may arrive, after those of the next one. So the answer is waited for at once.
    """
    client, losses = Client(), iter([0, lost, lost])
    one = TransactionalProducer(
        lambda: cast("Any", client), 1.0, Liveness("test"), lambda _: next(losses)
    )
    one.begin()
    one.send_offsets(OFFSETS, None)
    one.start_commit()
    assert (one.state == "committing") is not is_waited_for
    one.finish_commit()
    assert one.state == ("new" if lost else "ready"), "with a lost connection it is replaced"


def test_a_client_that_lost_a_connection_while_idle_is_replaced() -> None:
    """Before it opens a transaction: it may have lost the group's coordinator with it. What it lost
    while it was created does not count.
    """
    losses = [1]
    one, made = producer()
    one.count_lost = lambda _: losses[0]
    for lost, clients in ((1, 1), (1, 1), (2, 2), (2, 2)):
        losses[0] = lost
        one.begin()
        one.send_offsets(OFFSETS, None)
        commit(one)
        assert (one.state, len(made)) == ("ready", clients)


def test_an_abort_that_is_answered_keeps_the_producer() -> None:
    """Nothing became visible and that is certain: the producer goes on."""
    one, made = producer(send_offsets_to_transaction=ABORTABLE)
    one.begin()
    with pytest.raises(TransactionFailed):
        one.send_offsets(OFFSETS, None)
    assert (one.state, len(made), made[0].calls[-1]) == ("ready", 1, "abort_transaction")


def test_an_abort_in_doubt_throws_the_producer_away() -> None:
    """The client asked for an abort, and the abort was not answered."""
    one, _ = producer(send_offsets_to_transaction=ABORTABLE, abort_transaction=TIMED_OUT)
    one.begin()
    with pytest.raises(TransactionFailed):
        one.send_offsets(OFFSETS, None)
    assert (one.state, one.client) == ("new", None)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_producer_that_is_fenced_while_it_writes_says_so(hidden: bool) -> None:
    """`flush` raises it before any commit is tried, behind a delivery report as the context of a
    SystemError; any other one stays what it is.
    """
    one, made = producer()
    one.begin()

    def flush(_: float) -> int:
        try:
            raise KafkaException(FATAL)
        except KafkaException:
            if not hidden:
                raise
            # as the interpreter does it
            raise SystemError("a result with an exception set")  # noqa: B904

    made[0].flush = flush  # type: ignore[attr-defined]
    with pytest.raises(Fenced, match="writing the records"):
        one.flush()
    assert one.client is None
    one.begin()

    def fail(_: float) -> int:
        raise SystemError("something else")

    made[1].flush = fail  # type: ignore[attr-defined]
    with pytest.raises(SystemError):
        one.flush()


def test_a_fatal_error_ends_the_process() -> None:
    """Fenced: somebody newer is there; this is no TransactionFailed, after which the loop would go
    on.
    """
    one, _ = producer(commit_transaction=FATAL)
    one.begin()
    one.send_offsets(OFFSETS, None)
    with pytest.raises(Exception, match="fenced") as raised:
        commit(one)
    assert not isinstance(raised.value, TransactionFailed)
    assert one.state == "new"


def test_offsets_of_many_partitions_are_sent_in_requests_that_a_broker_takes() -> None:
    """All of them, in order, and only then the transaction can be committed."""
    sent: list[list[TopicPartition]] = []
    client = SimpleNamespace(
        init_transactions=lambda _: None,
        begin_transaction=lambda: None,
        send_offsets_to_transaction=lambda offsets, *_: sent.append(offsets),
    )
    one = TransactionalProducer(lambda: cast(Any, client), 1.0, Liveness("test"))
    offsets = [TopicPartition("t", partition) for partition in range(2 * COMMIT_PARTITIONS_MAX + 1)]
    one.begin()
    one.send_offsets(offsets, b"member")
    assert one.state == "offsets sent"
    assert [len(batch) for batch in sent] == [COMMIT_PARTITIONS_MAX, COMMIT_PARTITIONS_MAX, 1]
    assert [tp for batch in sent for tp in batch] == offsets
