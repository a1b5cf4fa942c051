"""`reo topics`: are destination and intermediate topic still made as the source topic is, and with `--apply`, make them so.

A topic that reo creates takes over what is set on the source topic (`common.topic_config`); what is changed there later is not followed by itself, since a
shorter retention, say, deletes at the destination too: that is an operator's to see first. Without `--apply` nothing is changed.

What is set on the source topic is set on the destination. What is set on the destination alone is somebody's decision and stays, as does a higher
`max.message.bytes`: the source may have records from the time before it was lowered. Missing topics and partitions are added as at a start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import orjson
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from common import mapping, permissions, source_candidates, tables, topic_config, topics
from common.errors import ReoError, TopicsUnfit
from common.kafka_clients import REQUEST_TIMEOUT_S, admin, ask_with_retries
from common.settings import Settings
from common.topic_config import LIMIT, Entries


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is not the same: what it is, what it will be (None: it stays), and why."""

    topic: str
    what: str
    now: str
    then: str | None
    why: str

    def __str__(self) -> str:
        """In words."""
        follows = f"stays {self.now}" if self.then is None else f"{self.now} → {self.then}"
        return f"{self.topic}: {self.what}: {follows} ({self.why})"


class Alike:
    """The topics of all routes, looked at when made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings = source_candidates.select_answering(settings)
        timeout_s = settings.number("connect_timeout_s")
        source_admin, self.destination_admin = admin(settings.source, settings), admin(settings.destination, settings)
        sources = topics.sources(settings, source_admin, timeout_s)
        names = topics.written_topics(settings, sources)
        self.existing = topics.look_up(settings.destination, self.destination_admin, names, timeout_s)
        self.rows: list[Row] = []
        seen: set[str] = set()
        for route, source in sources.items():
            there = topics.all_config(source_admin, settings.source, source.name)
            if route.destination_topic not in seen:  # a shared one is made as the first of its source topics is
                seen.add(route.destination_topic)
                count = mapping.least_partitions if route.destination_topic in self.existing else mapping.partitions_to_make
                wanted = max(count(other.mapping, at_source.partitions) for other, at_source in sources.items()
                             if other.destination_topic == route.destination_topic)
                self.rows += self._of(route.destination_topic, wanted, there, _destination)
            self.rows += self._of(route.intermediate_topic, source.partitions, there, _intermediate)

    def apply(self) -> None:
        """Change the configurations, then make or extend the topics, as a start does."""
        changes: dict[str, dict[str, str]] = {}
        for row in self.rows:
            if row.then is not None and row.what not in ("topic", "partitions"):
                changes.setdefault(row.topic, {})[row.what] = row.then
        for name, wanted in changes.items():
            self._set(name, wanted)
        topics.prepare(self.settings)

    def _of(self, name: str, partitions: int, there: Entries, compare: Callable[[str, Entries, Entries], list[Row]]) -> list[Row]:
        found = self.existing.get(name)
        if found is None:
            return [Row(name, "topic", "none", f"{partitions} partitions", "with the source's configurations")]
        rows = [] if found.partitions >= partitions else [Row(name, "partitions", str(found.partitions), str(partitions), "the source has them")]
        return rows + compare(name, there, topics.all_config(self.destination_admin, self.settings.destination, name))

    def _set(self, name: str, changes: dict[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[
            ConfigEntry(what, value, incremental_operation=AlterConfigOpType.SET) for what, value in changes.items()])

        def ask() -> None:
            self.destination_admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
        try:
            ask_with_retries(f"changing the configuration of topic {name} of the destination cluster", REQUEST_TIMEOUT_S, ask)
        except ReoError as failed:
            raise type(failed)(f"{failed}; wanted: {', '.join(f'{what}={value}' for what, value in changes.items())}") from None


def _destination(name: str, there: Entries, here: Entries) -> list[Row]:
    """A destination topic against its source topic."""
    wanted, refused, at_source = topic_config.for_copy(there, here), topic_config.refused(there, here), topic_config.own(there)
    rows = []
    for what, value in wanted.items():
        now = str(here[what].value)
        if what == LIMIT and int(now) > int(value):
            rows.append(Row(name, what, now, None, f"the source has {value} now; larger records may be there from before"))
        elif now != value:
            rows.append(Row(name, what, now, value, topic_config.NOT_OVER.get(what, "as the source topic")))
    rows += [Row(name, what, str(here[what].value) if what in here else "unknown", None, f"the source topic has {at_source[what]}: {why}")
             for what, why in refused.items() if what not in wanted]
    alone = {what: value for what, value in topic_config.own(here).items() if what not in wanted and what not in at_source}
    return rows + [Row(name, what, value, None, "set here only") for what, value in alone.items()]


def _intermediate(name: str, there: Entries, here: Entries) -> list[Row]:
    """An intermediate topic against what reo makes."""
    rows = []
    for what, value in topic_config.for_intermediate(there).items():
        now = str(here[what].value)
        if what != "message.timestamp.type" and now != value and not (what == LIMIT and int(now) > int(value)):
            rows.append(Row(name, what, now, value, "as reo makes it"))
    return rows


def command(settings: Settings, apply: bool, as_json: bool) -> int:
    """The sub-command: exit code 0 also when something is not alike; with `--apply` only when it was made so."""
    try:
        tables.refuse(settings, "reo topics", "there is no destination topic")
        permissions.check_permissions(settings, "topics --apply" if apply else "topics")
        found = Alike(settings)
        changes = [row for row in found.rows if row.then is not None]
        if apply and changes:
            found.apply()
            left = [row for row in Alike(settings).rows if row.then is not None]
            if left:
                raise TopicsUnfit(f"after the change this is still not alike: {'; '.join(map(str, left))}")
    except ReoError as error:
        print(f"reo topics: {error}", file=sys.stderr)
        return error.exit_code
    if as_json:
        print(orjson.dumps({"applied": apply and bool(changes), "rows": [asdict(row) for row in found.rows]}).decode())
        return 0
    for row in found.rows:
        print(row)
    if not changes:
        print("destination and intermediate topic are made as the source topic is")
    else:
        print("changed" if apply else "nothing was changed; `reo topics --apply` changes it")
    return 0
