"""`reo topics`: lists where the configurations of destination and intermediate topics differ from
what the source topic asks for; `--apply` changes them.

A topic that reo creates takes over the configuration of the source topic
(`common.kafka.copied_configs`). Later changes there are not taken over automatically: a shorter
retention, for example, also deletes records at the destination, so an operator has to decide.

What is set only on the destination topic is intended and stays, and so does a higher
`max.message.bytes`: the source may have records from before it was lowered. What `topics.sync`
names gets the value that is in effect at the source, also when it is the default of the source's
brokers, and the service does that at each start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from common import source_pool
from common.errors import ReoError, TopicsUnfit
from common.kafka import (
    copied_configs,
    permissions,
    source_topics,
    topic_creation,
    topic_fitness,
    topics,
)
from common.kafka.clients import create_admin_clients
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.kafka.copied_configs import LIMIT, Entries
from common.routes import name_some
from common.settings import Settings, destination_kind
from reo.report import print_json

log = logging.getLogger(__name__)
KEPT_ALIKE = "kept alike (topics.sync)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: its present value, its new value (None: it stays), and why."""

    topic: str
    what: str
    now: str
    then: str | None
    why: str

    def __str__(self) -> str:
        """As text for a person."""
        change = f"stays {self.now}" if self.then is None else f"{self.now} → {self.then}"
        return f"{self.topic}: {self.what}: {change} ({self.why})"


def compare_value(name: str, config: str, now: str, value: str, why: str) -> Iterator[Difference]:
    """Nothing when both are the same. max.message.bytes is never lowered."""
    if config == LIMIT and int(now) > int(value):
        why = f"the source has {value} now; larger records may be there from before"
        yield Difference(name, config, now, None, why)
    elif now != value:
        yield Difference(name, config, now, value, why)


def compare_intermediate(name: str, source: Entries, intermediate: Entries) -> Iterator[Difference]:
    """Compare an intermediate topic with what reo creates."""
    for config, value in copied_configs.build_intermediate_config(source).items():
        if config != "message.timestamp.type":
            now = str(intermediate[config].value)
            for row in compare_value(name, config, now, value, "as reo creates it"):
                if row.then is not None:
                    yield row


class ConfigDrift:
    """The differences of the topics of all routes, at the time of its creation."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings = source_pool.select_answering(settings)
        timeout_s = settings.connect_timeout_s
        source_admin, self.destination_admin = create_admin_clients(settings)
        sources = source_topics.describe_sources(settings, source_admin, timeout_s)
        names = topics.list_written_topics(settings, sources)
        self.existing = topics.look_up(
            settings.destination_cluster, self.destination_admin, names, timeout_s
        )
        self.differences: list[Difference] = []
        compared: set[str] = set()
        for route, source in sources.items():
            entries = topics.describe_config(source_admin, settings.source_cluster, source.name)
            name = route.destination_topic
            # a shared one follows the first of its source topics
            if name not in compared:
                compared.add(name)
                partitions = max(
                    topic_fitness.count_needed(other, at_source, name not in self.existing)
                    for other, at_source in sources.items()
                    if other.destination_topic == name
                )
                self._compare_topic(name, partitions, entries, self._compare_destination)
            self._compare_topic(
                route.intermediate_topic, source.partitions, entries, compare_intermediate
            )

    def apply(self) -> None:
        """Change the configurations, then create topics and add partitions, as a start does."""
        self.alter_configs(
            row for row in self.differences if row.what not in ("topic", "partitions")
        )
        topic_creation.prepare_topics(self.settings)

    def alter_configs(self, differences: Iterable[Difference]) -> None:
        """Change these configurations, in one request for each topic. TopicsUnfit when brokers
        refuse some; the others are changed.
        """
        changes: dict[str, dict[str, str]] = {}
        for row in differences:
            if row.then is not None:
                changes.setdefault(row.topic, {})[row.what] = row.then
        refusals = []
        for name, configs in changes.items():
            try:
                self._alter_topic(name, configs)
            except TopicsUnfit as refused:
                refusals.append(str(refused))
        if refusals:
            raise TopicsUnfit("; ".join(refusals))

    def _compare_topic(
        self,
        name: str,
        partitions: int,
        source: Entries,
        compare: Callable[[str, Entries, Entries], Iterable[Difference]],
    ) -> None:
        topic = self.existing.get(name)
        if topic is None:
            then, why = f"{partitions} partitions", "with the source's configurations"
            self.differences.append(Difference(name, "topic", "none", then, why))
            return
        if topic.partitions < partitions:
            now, then = str(topic.partitions), str(partitions)
            self.differences.append(
                Difference(name, "partitions", now, then, "the source has them")
            )
        cluster = self.settings.destination_cluster
        entries = topics.describe_config(self.destination_admin, cluster, name)
        self.differences += compare(name, source, entries)

    def _compare_destination(
        self, name: str, source: Entries, copy: Entries
    ) -> Iterator[Difference]:
        """Compare a destination topic with its source topic: first what is kept alike."""
        synced = {
            config: str(source[config].value)
            for config in self.settings.topics.synced_configs
            if config in source and config in copy
        }
        expected = synced | copied_configs.build_destination_config(source, copy) | synced
        for config, value in expected.items():
            now = str(copy[config].value)
            if config == "min.insync.replicas" and now != value:
                replicas = self._count_replicas(name)
                if int(value) > replicas:
                    why = f"the source has {value}; with {replicas} replicas nothing could be"
                    yield Difference(name, config, now, None, f"{why} written here")
                    continue
            why = copied_configs.NOT_TAKEN_OVER.get(config, "as the source topic")
            yield from compare_value(
                name, config, now, value, KEPT_ALIKE if config in synced else why
            )
        set_at_source = copied_configs.list_own_configs(source)
        for config, reason in copied_configs.list_not_copied(source, copy).items():
            if config not in expected:
                now = str(copy[config].value) if config in copy else "unknown"
                why = f"the source topic has {set_at_source[config]}: {reason}"
                yield Difference(name, config, now, None, why)
        for config, value in copied_configs.list_own_configs(copy).items():
            if config not in expected and config not in set_at_source:
                yield Difference(name, config, value, None, "set here only")

    def _count_replicas(self, name: str) -> int:
        """Of the partition that has the fewest."""
        answers = self.destination_admin.describe_topics(
            TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S
        )
        return min(len(partition.replicas) for partition in answers[name].result().partitions)

    def _alter_topic(self, name: str, changes: dict[str, str]) -> None:
        entries = [
            ConfigEntry(what, value, incremental_operation=AlterConfigOpType.SET)
            for what, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        request = self.destination_admin.incremental_alter_configs

        def alter() -> None:
            request([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()

        action = f"changing the configuration of topic {name} of the destination cluster"
        try:
            ask_with_retries(action, REQUEST_TIMEOUT_S, alter)
        except ReoError as error:
            requested = ", ".join(f"{what}={value}" for what, value in changes.items())
            raise type(error)(f"{error}; requested: {requested}") from None


def sync_configs(settings: Settings) -> None:
    """What the service does at its start: only what `topics.sync` names."""
    drift = ConfigDrift(settings)
    differences = [row for row in drift.differences if row.why == KEPT_ALIKE]
    drift.alter_configs(differences)
    for row in differences:
        log.info("changed %s", row)


def run_command(settings: Settings, apply: bool, as_json: bool) -> int:
    """The command: exit code 0 also when there are differences; with `--apply` only when none
    is left.
    """
    destination_kind.refuse_command(settings, "reo topics", "there is no destination topic")
    permissions.check_permissions(settings, "topics --apply" if apply else "topics")
    drift = ConfigDrift(settings)
    changes = [row for row in drift.differences if row.then is not None]
    if apply and changes:
        drift.apply()
        remaining = [row for row in ConfigDrift(settings).differences if row.then is not None]
        if remaining:
            raise TopicsUnfit(f"these differences remain after the change: {name_some(remaining)}")
    if as_json:
        rows = [asdict(row) for row in drift.differences]
        print_json({"applied": apply and bool(changes), "rows": rows})
        return 0
    to_do = "changed" if apply else "nothing was changed; `reo topics --apply` changes it"
    fit = "destination and intermediate topics are configured as the source topics ask"
    print("\n".join([*map(str, drift.differences), to_do if changes else fit]))
    return 0
