"""The way of a request to a cluster and of the response back, in virtual time, and what happens to
requests and responses that are lost or late.

Each request of a client goes through `Network.request`, or through `Network.send` when no task
waits for it. A request in flight arrives even when its process has died. Requests that librdkafka
retries by itself are retried here with the same content, so a first copy that arrives late, or
twice, reaches the brokers as it does in reality.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from greenlet import GreenletExit

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut
from tools.simulator.schedule import Process, Schedule

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster

RequestOutcome = Literal["ok", "lost", "answer lost", "late"]
"""Of a request: it is executed and answered; it never arrives; it is executed but its response is
lost; it arrives after the client has given it up.
"""
Result = TypeVar("Result")
LATENCY_S = (0.0002, 0.003)
BROKEN_S = (0.001, 0.5)
"""The time until a client notices that its connection is broken."""
LATE_S = (0.05, 20.0)
FOREVER_S = 1e9
BACKOFF_S, BACKOFF_MAX_S = 0.1, 1.0


class Network:
    """The clusters, by address."""

    def __init__(self, schedule: Schedule, clusters: Mapping[str, Cluster] | None = None) -> None:
        self.schedule = schedule
        self.clusters: dict[str, Cluster] = dict(clusters or {})

    # for its replacement
    def choose_outcome(self, cluster: Cluster, api: str, process: Process | None) -> RequestOutcome:  # noqa: ARG002
        """The outcome of a request. The injector of faults replaces this method."""
        return "ok"

    def draw_latency_s(self) -> float:
        """The latency of one direction."""
        return self.schedule.random.uniform(*LATENCY_S)

    def request(
        self,
        cluster: Cluster,
        api: str,
        execute: Callable[[], Result],
        timeout_s: float,
        is_retried: bool = True,
        on_lost: Callable[[str], object] | None = None,
    ) -> Result:
        """Send a request and wait for the response. BrokerError is a response; RequestTimedOut and
        ConnectionLost mean that there is none.
        """
        schedule, backoff_s = self.schedule, BACKOFF_S
        if schedule.is_closing:
            raise GreenletExit
        deadline = schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)
        while True:
            answer = self._attempt(cluster, api, execute, deadline - schedule.now)
            if answer:
                value: Result
                value, error = answer[0]
                if error is not None:
                    raise error
                return value
            if on_lost:
                on_lost(api)
            if schedule.now >= deadline:
                raise RequestTimedOut
            if not is_retried:
                raise ConnectionLost
            schedule.sleep(min(backoff_s, deadline - schedule.now))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def _attempt(
        self, cluster: Cluster, api: str, execute: Callable[[], Any], remaining_s: float
    ) -> list[tuple[Any, BrokerError | None]]:
        schedule = self.schedule
        if cluster.is_down:
            schedule.wait(cluster.up, remaining_s)
            return []
        task, answer = schedule.task, list[tuple[Any, BrokerError | None]]()
        assert task is not None
        ticket = task.ticket

        def arrive() -> None:
            response = None if cluster.is_down else execute_request(execute)
            if task.ticket != ticket:
                return
            if response is None:
                schedule.resume_later(schedule.random.uniform(*BROKEN_S), task)
            else:
                answer.append(response)
                schedule.resume_later(self.draw_latency_s(), task)

        outcome = self.choose_outcome(cluster, api, schedule.process)
        if outcome == "ok":
            schedule.call_later(self.draw_latency_s(), arrive)
            schedule.sleep(remaining_s)
        else:
            self._drop_or_delay(cluster, outcome, execute)
            schedule.sleep(min(remaining_s, schedule.random.uniform(*BROKEN_S)))
        return answer

    def _drop_or_delay(
        self, cluster: Cluster, outcome: RequestOutcome, execute: Callable[[], Any]
    ) -> None:
        if outcome == "lost":
            return
        after_s = (
            self.draw_latency_s()
            if outcome == "answer lost"
            else self.schedule.random.uniform(*LATE_S)
        )
        self.schedule.call_later(
            after_s, lambda: None if cluster.is_down else (execute_request(execute), None)[1]
        )

    def send(
        self,
        cluster: Cluster,
        api: str,
        execute: Callable[[], Any],
        timeout_s: float,
        on_done: Callable[[Any, Exception | None], None],
    ) -> None:
        """Send a request once, without waiting. `on_done` is called with the response or with the
        error.
        """
        schedule = self.schedule
        if cluster.is_down:
            deadline = schedule.now + timeout_s
            self._send_when_up(
                cluster,
                partial(self.send, cluster, api, execute, timeout_s, on_done),
                deadline,
                on_done,
            )
            return
        outcome = self.choose_outcome(cluster, api, schedule.process)
        if outcome != "ok":
            self._drop_or_delay(cluster, outcome, execute)
            schedule.call_later(
                schedule.random.uniform(*BROKEN_S), lambda: on_done(None, ConnectionLost())
            )
            return

        def arrive() -> None:
            if cluster.is_down:
                schedule.call_later(
                    schedule.random.uniform(*BROKEN_S), lambda: on_done(None, ConnectionLost())
                )
                return
            response = execute_request(execute)
            schedule.call_later(self.draw_latency_s(), lambda: on_done(*response))

        schedule.call_later(self.draw_latency_s(), arrive)

    def _send_when_up(
        self,
        cluster: Cluster,
        resend: Callable[[], None],
        deadline: float,
        on_done: Callable[[Any, Exception | None], None],
    ) -> None:
        """The client reconnects until the cluster is up or the time is over."""
        schedule = self.schedule
        if schedule.now >= deadline:
            on_done(None, RequestTimedOut())
        elif cluster.is_down:
            schedule.call_later(
                min(0.5, deadline - schedule.now),
                partial(self._send_when_up, cluster, resend, deadline, on_done),
            )
        else:
            resend()


def execute_request(execute: Callable[[], Any]) -> tuple[Any, BrokerError | None]:
    """Execute a request as one step on the brokers' state."""
    try:
        return execute(), None
    except BrokerError as error:
        return None, error


def clients(network: Network) -> tuple[Any, Any, Any]:
    """The classes Consumer, Producer and AdminClient; each takes the options of librdkafka."""
    from tools.simulator.kafka.admin import AdminClient
    from tools.simulator.kafka.consumer import Consumer
    from tools.simulator.kafka.producer import Producer

    return partial(Consumer, network), partial(Producer, network), partial(AdminClient, network)
