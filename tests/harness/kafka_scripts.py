"""Scripts of client calls that run on a real cluster and on a simulated one. `ScriptContext` gives
them clients and records every result.

Values that differ from run to run (names, ids, times) are not recorded, or are replaced first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

T0 = 1_600_000_000_000
LONG_S = 60.0
"""The timeout of calls that return at once; long enough for a busy machine."""


class ScriptContext:
    """The clients of one cluster, and the results of their calls."""

    def __init__(
        self,
        clients: tuple[Any, Any, Any],
        address: str,
        name: str,
        sleep: Callable[[float], object],
        now_ms: Callable[[], float],
        start_thread: Callable[[Callable[[], object]], object],
    ) -> None:
        self.consumer_class, self.producer_class, self.admin_class = clients
        self.base_options = {
            "bootstrap.servers": address,
            "log_level": 0,
            "allow.auto.create.topics": False,
        }
        self.name = name
        """A unique name for a topic, a group, and a transactional id."""
        self.sleep = sleep
        self.now_ms = now_ms
        self.start_thread = start_thread
        self.notes: list[tuple[str, Any]] = []
        self.admin = self.admin_class(self.base_options)

    def note(self, what: str, value: Any) -> None:
        """Record a result."""
        self.notes.append((what, self.normalize(value)))

    def note_call(self, what: str, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Make a call, and record its result or its error."""
        try:
            value = call(*arguments, **more)
        except KafkaException as failed:
            self.note(what, failed.args[0])
        except (BufferError, RuntimeError, ValueError, TimeoutError) as failed:
            self.note(what, type(failed).__name__)
        else:
            self.note(what, value)
            return value
        return None

    def normalize(self, value: Any) -> Any:
        """A value that can be compared between clusters."""
        if isinstance(value, KafkaError):
            return (
                value.name(),
                (
                    f"retriable={value.retriable()} aborts={value.txn_requires_abort()}"
                    f" fatal={value.fatal()}"
                ),
            )
        if isinstance(value, TopicPartition):
            return value.partition, value.offset, value.metadata, self.normalize(value.error)
        if isinstance(value, dict):
            return {self.normalize(key): self.normalize(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.normalize(one) for one in value]
        return value.replace(self.name, "<name>") if isinstance(value, str) else value

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = LONG_S) -> Any:
        """Poll until the condition is true, and return its value."""
        for _ in range(int(timeout_s / 0.05)):
            seen = condition()
            if seen:
                return seen
            self.sleep(0.05)
        raise AssertionError(f"not in {timeout_s} s: {what}")

    # ---- clients

    def producer(self, **options: Any) -> Any:
        """A producer."""
        return self.producer_class(
            self.base_options
            | {
                "enable.idempotence": True,
                "linger.ms": 1,
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 50_000,
            }
            | convert_options(options)
        )

    def transactional(self, **options: Any) -> Any:
        """A transactional producer that is not initialised."""
        return self.producer(**{"transactional_id": self.name, **options})

    def reader(self, **options: Any) -> Any:
        """A consumer without a group."""
        return self.consumer_class(
            self.base_options
            | {
                "group.id": self.name,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
            | convert_options(options)
        )

    def member(self, **options: Any) -> Any:
        """A consumer of a group."""
        return self.reader(
            **{
                "enable_partition_eof": False,
                "session_timeout_ms": 45_000,
                "heartbeat_interval_ms": 500,
                "partition_assignment_strategy": "roundrobin",
                **options,
            }
        )

    def create(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """Create a topic, and wait until it can be used."""
        name = name or self.name
        self.admin.create_topics(
            [
                NewTopic(
                    name,
                    partitions,
                    1,
                    config={"retention.ms": "-1"}
                    | {key.replace("_", "."): one for key, one in config.items()},
                )
            ]
        )[name].result()
        self.until(lambda: self._is_usable(name, partitions), "the topic can be used")
        return name

    def _is_usable(self, name: str, partitions: int) -> bool:
        try:
            topics = self.admin.list_topics(timeout=LONG_S).topics
            if name not in topics or len(topics[name].partitions) != partitions:
                return False
            self.offsets(OffsetSpec.latest(), partitions, name=name)
        except KafkaException:
            return False
        return True

    # ---- questions

    def offsets(
        self, spec: Any, partitions: int = 1, isolation: Any = None, name: str = ""
    ) -> list[tuple[int, int | None]]:
        """Offset and leader epoch of each partition."""
        asked = {
            TopicPartition(name or self.name, partition): spec for partition in range(partitions)
        }
        more = {"isolation_level": isolation} if isolation is not None else {}
        answers = self.admin.list_offsets(asked, request_timeout=LONG_S, **more)
        found = {tp.partition: answer.result() for tp, answer in answers.items()}
        return [
            (found[partition].offset, found[partition].leader_epoch)
            for partition in range(partitions)
        ]

    def wait_until_decided(self, partitions: int = 1) -> None:
        """Wait until no transaction is open: all markers are written."""
        from confluent_kafka import IsolationLevel

        self.until(
            lambda: (
                self.offsets(OffsetSpec.latest(), partitions, IsolationLevel.READ_COMMITTED)
                == self.offsets(OffsetSpec.latest(), partitions)
            ),
            "no transaction is open",
        )

    def read(self, begins: Iterable[int], **options: Any) -> dict[int, list[Any]]:
        """All records from these offsets on, by partition, up to the first EOF or error of each;
        then the positions.
        """
        reader = self.reader(**options)
        topic_partitions = [
            TopicPartition(self.name, partition, begin) for partition, begin in enumerate(begins)
        ]
        reader.assign(topic_partitions)
        found: dict[int, list[Any]] = {tp.partition: [] for tp in topic_partitions}
        unfinished_partitions = set(found)

        def has_read_all() -> bool:
            for message in reader.consume(100, 0.2):
                partition = message.partition()
                if partition in unfinished_partitions:
                    error = message.error()
                    found[partition].append(
                        (message.offset(), error.name())
                        if error
                        else (
                            message.offset(),
                            message.key(),
                            message.value(),
                            message.headers(),
                            message.timestamp(),
                        )
                    )
                    unfinished_partitions.difference_update({partition} if error else ())
            return not unfinished_partitions

        self.until(has_read_all, "every partition is read")
        found[-1] = [
            self.normalize(reader.position(topic_partitions)),
            [reader.get_watermark_offsets(tp, cached=True) for tp in topic_partitions],
        ]
        reader.close()
        return found

    def write(
        self,
        producer: Any,
        values: Iterable[str],
        partition: int = 0,
        reports: list[Any] | None = None,
        **more: Any,
    ) -> None:
        """Produce records with fixed timestamps."""

        def on_delivery(error: Any, message: Any) -> None:
            if reports is not None:
                reports.append((self.normalize(error), message.offset()))

        for number, value in enumerate(values):
            producer.produce(
                self.name,
                value.encode(),
                b"k",
                partition,
                on_delivery=on_delivery if reports is not None else None,
                **{"timestamp": T0 + number, "headers": [("h", b"1"), ("n", None)], **more},
            )


def convert_options(options: dict[str, Any]) -> dict[str, Any]:
    """Option names as librdkafka writes them."""
    return {
        name if name == "log_level" else name.replace("_", "."): value
        for name, value in options.items()
    }
