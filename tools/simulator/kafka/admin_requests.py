"""The requests of a simulated AdminClient: each is sent at once, and its future waits for the
response when the result is read.

No request is retried: a broken connection is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Node

from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import BrokerError, RequestTimedOut, create_exception
from tools.simulator.kafka.future import Future

TIMEOUT_S = 60.0


class AdminRequests(Client):
    """The part of an AdminClient that sends requests."""

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002  (no caller waits here)
        """Run pending callbacks."""
        return self.run_callbacks()

    def send_request(
        self,
        api: str,
        execute: Callable[[], Any],
        options: Mapping[str, Any],
        timeout_answer: Any = None,
        is_sent: bool = True,
    ) -> Future:
        """One request. When it times out, as when it is not sent at all, the result is
        `timeout_answer`; without one, it is an error.
        """
        timeout_s = float(options.get("request_timeout", TIMEOUT_S))
        future = Future(self.schedule)

        def on_done(value: Any, error: Exception | None) -> None:
            if error is None or (timeout_answer is not None and isinstance(error, RequestTimedOut)):
                future.set(value if error is None else timeout_answer)
            elif isinstance(error, BrokerError):
                future.fail(create_exception(error.code, error.reason))
            elif isinstance(error, RequestTimedOut):
                self.report_lost_connection(api)
                future.fail(
                    create_exception(
                        KafkaError._TIMED_OUT,
                        "Failed while waiting for response from broker: Local: Timed out",
                    )
                )
            else:
                self.report_lost_connection(api)
                future.fail(
                    create_exception(
                        KafkaError._TRANSPORT,
                        f"{api} worker request failed: Local: Broker transport failure",
                    )
                )

        if is_sent:
            self.network.send(self.cluster, api, execute, timeout_s, on_done)
        else:
            self.schedule.call_later(timeout_s, lambda: on_done(None, RequestTimedOut()))
        return future

    def request_for_each(
        self,
        api: str,
        calls: Mapping[Any, Callable[[], Any]],
        options: Mapping[str, Any],
        timeout_answer: Any = None,
        is_sent: bool = True,
    ) -> dict[Any, Future]:
        """One request, with a result for each key."""
        futures = {key: Future(self.schedule) for key in calls}

        def execute() -> dict[Any, Any]:
            answers = {}
            for key, call in calls.items():
                try:
                    answers[key] = call()
                except BrokerError as error:
                    answers[key] = create_exception(error.code, error.reason)
            return answers

        request_future = self.send_request(
            api,
            execute,
            options,
            dict.fromkeys(calls, timeout_answer) if timeout_answer is not None else None,
            is_sent,
        )

        def complete_all() -> None:
            for key, future in futures.items():
                future.set_from_answer(request_future, key)

        request_future.on_completed(complete_all)
        return futures

    def node(self) -> Any:
        """The only broker."""
        return Node(1, self.cluster.name, 9092)
