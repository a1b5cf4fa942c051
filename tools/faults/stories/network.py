"""The network between the service and its clusters: connections are cut, go silent, get slow;
single requests and answers are lost or late.
"""

from __future__ import annotations

import struct
import time
from functools import partial

from confluent_kafka import KafkaError

from tests.harness.kafka import until
from tools.faults.proxy import Proxy
from tools.faults.proxy_rule import Action
from tools.faults.run import Run, Story
from tools.faults.testbed import ProxiedCluster

REFUSED = (
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_TXN_STATE,
)
PATIENCE_S = 120
ACTIONS: tuple[Action, ...] = ("drop", "swallow_answer", "cut")
REQUESTS = (
    "Produce",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "Heartbeat",
    "Fetch",
    "OffsetFetch",
)


def get_proxy(run: Run, side: str) -> Proxy:
    """The proxy in front of this cluster."""
    cluster = run.clusters.source if side == "source" else run.clusters.destination
    assert isinstance(cluster, ProxiedCluster)
    return cluster.proxy


def cut_once(run: Run, side: str) -> None:
    """Cut all connections to this cluster."""
    run.record_fault(f"connections cut, {side}", get_proxy(run, side).cut_all())


def hold_half_open(run: Run, side: str, seconds: float) -> None:
    """Make the connections to this cluster half-open for so long."""
    proxy = get_proxy(run, side)
    proxy.half_open = True
    run.record_fault(f"half-open for {seconds:.0f} s, {side}")
    time.sleep(seconds)  # how long it lasts is the harm
    proxy.half_open = False


def cut_connections(run: Run, side: str, times: int = 4) -> None:
    """Cut all connections at once, several times."""
    run.start()
    run.wait_for_progress()
    for _ in range(times):
        cut_once(run, side)
        run.wait_for_progress(300, 2000)
    run.wait_for_progress()


def make_half_open(run: Run, side: str) -> None:
    """Connections stay open and carry nothing, for up to several session timeouts."""
    run.start()
    run.wait_for_progress()
    hold_half_open(run, side, run.rng.uniform(5, 25))
    run.wait_for_progress()


def delay_requests(run: Run, side: str) -> None:
    """Delay each direction by 300 ms, from the start on."""
    get_proxy(run, side).delay_s = 0.3
    run.start()
    run.wait_for_progress()
    seen = get_proxy(run, side).request_counts.total()
    run.wait_for_progress()
    run.record_fault(
        f"requests delayed by 300 ms, {side}", get_proxy(run, side).request_counts.total() - seen
    )
    get_proxy(run, side).delay_s = 0


def limit_bandwidth(run: Run, side: str) -> None:
    """Less bandwidth than the load needs; then no limit."""
    run.start()
    run.wait_for_progress()
    proxy = get_proxy(run, side)
    seen = proxy.request_counts.total()
    proxy.bytes_per_s = 50_000
    run.wait_for_progress()
    run.record_fault(f"requests over a slow line, {side}", proxy.request_counts.total() - seen)
    proxy.bytes_per_s = 0
    run.wait_for_progress()


def fault_request(run: Run, action: str, api: str, times: int = 3) -> None:
    """One request of an API is lost, or its response, or its connection, at a random time."""
    run.start()
    run.wait_for_progress()
    for _ in range(times):
        rule = get_proxy(run, "destination").add_rule(action, api, nth=run.rng.randint(1, 20))  # type: ignore[arg-type]
        until(rule.matched_event.is_set, f"{api} is struck", PATIENCE_S)
        run.record_fault(f"{action} {api}")
        run.wait_for_progress(300, 2000)
    run.wait_for_progress()


def fault_any_request(run: Run, times: int = 5) -> None:
    """A random fault of a random request, on either side."""
    run.start()
    run.wait_for_progress()
    for _ in range(times):
        api, action = run.rng.choice(REQUESTS), run.rng.choice(ACTIONS)
        side = "destination" if api != "Fetch" else run.rng.choice(("source", "destination"))
        nth = run.rng.randint(1, 20 if api != "OffsetFetch" else 3)
        rule = get_proxy(run, side).add_rule(action, api, nth=nth)
        until(rule.matched_event.is_set, f"{api} is struck", PATIENCE_S)
        run.record_fault(f"{action} {api}, {side}")
        run.wait_for_progress(300, 2000)
    run.wait_for_progress()


def delay_commit(run: Run) -> None:
    """An EndTxn is held until its producer is closed and another transaction is open, then
    released: the broker must refuse it.
    """
    service = run.start()
    run.wait_for_progress()
    rule = get_proxy(run, "destination").add_rule("hold", "EndTxn", nth=run.rng.randint(1, 20))
    until(rule.matched_event.is_set, "an EndTxn is held", PATIENCE_S)
    until(
        lambda: service.metric("reo_transactions_total", outcome="unknown") >= 1,
        "the producer is given up",
        PATIENCE_S,
    )
    run.wait_for_progress(300, 1000)
    rule.release()
    until(rule.answered.is_set, "the broker has answered the late EndTxn", 30)
    (code,) = struct.unpack_from(">h", rule.answers[0], 4)
    assert code in REFUSED, f"the late EndTxn was answered with error code {code}"
    run.record_fault(f"late EndTxn refused ({KafkaError(code).name()})")
    run.wait_for_progress()


def delay_repeated_commit(run: Run) -> None:
    """An EndTxn is held, its connection is cut, and librdkafka repeats it by itself. The commit is
    certain, the first EndTxn may come at any time.

    For a producer that is used again it would end a later transaction (transactions v1, KIP-890):
    the producer must be replaced, and the late EndTxn refused.
    """
    run.start()
    run.wait_for_progress()
    proxy = get_proxy(run, "destination")
    rule = proxy.add_rule("hold", "EndTxn", nth=run.rng.randint(1, 20))
    until(rule.matched_event.is_set, "an EndTxn is held", PATIENCE_S)
    proxy.cut_all()
    run.wait_for_progress(500, 1500)
    rule.release()
    until(rule.answered.is_set, "the broker has answered the late EndTxn", 30)
    (code,) = struct.unpack_from(">h", rule.answers[0], 4)
    assert code in REFUSED, f"the late EndTxn was answered with error code {code}"
    run.record_fault(f"late EndTxn that was repeated, refused ({KafkaError(code).name()})")
    run.wait_for_progress()


STORIES = (
    *(
        Story(f"connections cut, {side}", partial(cut_connections, side=side), brokers="proxied")
        for side in ("source", "destination")
    ),
    *(
        Story(f"half-open, {side}", partial(make_half_open, side=side), brokers="proxied")
        for side in ("source", "destination")
    ),
    *(
        Story(
            f"300 ms delay, {side}",
            partial(delay_requests, side=side),
            brokers="proxied",
            records_per_s=1000,
        )
        for side in ("source", "destination")
    ),
    *(
        Story(
            f"slow, {side}",
            partial(limit_bandwidth, side=side),
            brokers="proxied",
            records_per_s=1000,
        )
        for side in ("source", "destination")
    ),
    *(
        Story(
            f"{action} EndTxn",
            partial(fault_request, action=action, api="EndTxn"),
            brokers="proxied",
        )
        for action in ("drop", "swallow_answer", "cut")
    ),
    Story(
        "swallow_answer Produce",
        partial(fault_request, action="swallow_answer", api="Produce"),
        brokers="proxied",
    ),
    Story(
        "swallow_answer TxnOffsetCommit",
        partial(fault_request, action="swallow_answer", api="TxnOffsetCommit"),
        brokers="proxied",
    ),
    Story("any request", fault_any_request, brokers="proxied"),
    Story("late EndTxn", delay_commit, brokers="proxied"),
    Story("late EndTxn that the client repeated", delay_repeated_commit, brokers="proxied"),
)
