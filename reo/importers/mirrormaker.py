"""Converts a flow of MirrorMaker 2 to settings of reo.

The properties have the names of a connector's configuration (`mirrormaker_properties`). A property
becomes a setting, or a note says why not: those without an equivalent are in `NO_EQUIVALENT`. What
MirrorMaker 2 does by default is converted as if the file had it.

Sources: MirrorSourceConfig, MirrorCheckpointConfig, MirrorConnectorConfig and the replication
policies of Kafka 4.3; the worker's and the clients' options in Kafka's documentation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from common.kafka.copied_configs import SYNCABLE
from common.settings.client_options import get_guards
from common.settings.schema import BY_NAME
from common.topic_rules import TOPIC_NAME, Rule
from reo.importers.imported_settings import ImportedSettings, Table
from reo.importers.mirrormaker_properties import NOT_USED, Flow
from reo.importers.mirrormaker_security import convert_security

TOPICS_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*"
GROUPS_EXCLUDED = "console-consumer-.*,connect-.*,__.*"
CONFIGS_EXCLUDED = (
    r"follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,"
    r"message\.timestamp\.difference\.max\.ms,log\.message\.timestamp\.before\.max\.ms,"
    r"log\.message\.timestamp\.after\.max\.ms,message\.timestamp\.type,"
    r"unclean\.leader\.election\.enable,min\.insync\.replicas"
)
INTERNAL = (r".*[.-]internal", "heartbeats")
"""Topics that MirrorMaker 2 copies under no circumstances, or that only its own need."""
COMPRESSION = {name: name for name in BY_NAME["producer.compression_type"].choices}
REFERENCE = re.compile(r"\$\{[^}]*:[^}]*\}")
NO_EQUIVALENT = {
    r"(emit\.)?(offset-syncs|checkpoints|heartbeats)\..*|offset\.lag\.max": (
        "positions are found in the data: reo has no topics of that kind"
    ),
    r"refresh\.(topics|groups)\..*": "new topics, partitions and groups are found by itself",
    r"tasks\.max(\.enforce)?": (
        "stage one has a task for each partition; stage two: deduplicator.workers"
    ),
    r"(topic|group|config\.property)\.filter\.class": "a class in Java: write it as rules",
    r"(transforms|predicates)(\..*)?": (
        "reo changes no record; filters choose records (docs/how-to/filter.md)"
    ),
    r"errors\..*": "a record that cannot be copied stops the service, with its place",
    r"(metrics?|rest|admin\.listeners|listeners|dedicated\.mode)\b.*|add\.source\.alias.*": (
        "see /metrics, /livez, /readyz and `reo status --json`"
    ),
    r"target\.producer\..*|producer\.override\..*": (
        "stage two's producer is librdkafka: where its default does not do, set its own option of"
        " that meaning in destination.producer_options"
    ),
    r"(source|target)\.(admin|producer|consumer)\..*|admin\..*|forwarding\..*|consumer\.poll\..*"
    r"|use\.incremental\..*|replication\.policy\.internal\..*": (
        "of a client or topic of MirrorMaker 2's own that reo does not have"
    ),
    r"(source|target)\.cluster\..*|(offset|config|status)\.storage\..*|(task|worker|plugin)\..*"
    r"|(key|value|header)\.converter.*|connector\..*|config\.(providers|action).*|name|group\.id": (
        "of Kafka Connect's worker, which reo does without"
    ),
    rf"{NOT_USED}.*": (
        "MirrorMaker 2 does not use it either: clients' options have the cluster before them"
    ),
}
"""Properties without a setting: a regular expression of the name, and why. The first that fits."""


class Lists(NamedTuple):
    """What is included and what excluded, as regular expressions of whole names."""

    included: list[str]
    excluded: list[str]

    def build_pattern(self) -> str:
        """One regular expression; empty when nothing is included."""
        if not self.included:
            return ""
        without = f"(?!(?:{'|'.join(self.excluded)})$)" if self.excluded else ""
        return f"{without}(?:{'|'.join(self.included)})"


def import_settings(flow: Flow, with_secrets: bool = False) -> ImportedSettings:
    """The settings for what MirrorMaker 2 does for this flow."""
    into = ImportedSettings()
    table = Table(into, "", flow.properties, flow.names)
    for key, value in flow.properties.items():
        if REFERENCE.search(value) and not key.endswith("sasl.jaas.config"):
            table.drop(key, f"{value} is a reference, which reo does not resolve")
    for side, cluster in (("source", "source.cluster."), ("destination", "target.cluster.")):
        servers = table.take(f"{cluster}bootstrap.servers") or ""
        into.values[f"{side}.bootstrap_servers"] = ",".join(map(str.strip, servers.split(",")))
        convert_security(table, cluster, side, with_secrets)
    _convert_topics(table, flow.others)
    _convert_groups(table)
    _convert_topic_configs(table)
    _convert_consumer(table)
    _convert_producer(table)
    _convert_exactly_once(table)
    for key in list(table.left):
        reason = next((why for keys, why in NO_EQUIVALENT.items() if re.fullmatch(keys, key)), "")
        if reason:
            table.drop(key, reason)
    table.end("MirrorMaker 2")
    return into


def _take_list(table: Table, key: str, default: str) -> list[str]:
    """An empty list is not the default."""
    return [part.strip() for part in table.left.pop(key, default).split(",") if part.strip()]


def _is_true(table: Table, key: str, default: str) -> bool:
    return str(table.left.pop(key, default)).lower() == "true"


def _convert_topics(table: Table, others: tuple[str, ...]) -> None:
    """Names become rules of their own; where there is a regular expression, all become one
    pattern, because no topic may fit two rules.
    """
    prefix, target = _convert_policy(table), table.left.pop("target.cluster.alias", "target")
    topics = Lists(
        _take_list(table, "topics", ".*"),
        _take_list(table, "topics.exclude", table.left.pop("topics.blacklist", TOPICS_EXCLUDED)),
    )
    if all(map(TOPIC_NAME.fullmatch, topics.included)):
        excluded = _build_regex(table, "topics.exclude", "|".join(topics.excluded))
        for name in dict.fromkeys(topics.included):
            if excluded and excluded.fullmatch(name):
                table.note("topics.exclude", f"{name} is excluded, so it is not imported")
            else:
                table.into.topics[name] = prefix + name
    else:
        cycle = [f"(?:.*{re.escape(prefix[-1:])})?{re.escape(target + prefix[-1:])}.*"]
        pattern = Lists(
            topics.included, [*topics.excluded, *INTERNAL, *(cycle if prefix else ())]
        ).build_pattern()
        rule = Rule(f"^{pattern}", rf"{prefix}\g<0>" if prefix else "")
        for reason in rule.find_errors():
            table.note("topics", f"not imported, write the rule by hand: {reason}")
            return
        table.into.topics[rule.source] = rule.destination
    for other in others:
        table.note(
            other,
            "also enabled: a service of its own, imported with --flow"
            + ("" if prefix else "; for both directions of one topic see provenance.header"),
        )


def _convert_policy(table: Table) -> str:
    """What the names of the copies begin with."""
    policy = table.left.pop("replication.policy.class", "DefaultReplicationPolicy")
    prefix: str = table.left.pop("source.cluster.alias", "") + table.left.pop(
        "replication.policy.separator", "."
    )
    if policy.endswith("IdentityReplicationPolicy"):
        return ""
    if not policy.endswith("DefaultReplicationPolicy"):
        table.note(
            "replication.policy.class",
            f"{policy} is unknown: the copies have the topics' own names, unless you change the"
            " rules",
        )
        return ""
    return prefix


def _build_regex(table: Table, key: str, pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern else None
    except re.error as reason:
        table.note(key, f"{pattern!r} is not a regular expression of Python's: {reason}")
        return None


def _convert_groups(table: Table) -> None:
    groups = Lists(
        _take_list(table, "groups", ".*"),
        _take_list(table, "groups.exclude", table.left.pop("groups.blacklist", GROUPS_EXCLUDED)),
    ).build_pattern()
    interval = "sync.group.offsets.interval.seconds"
    if not _is_true(table, "sync.group.offsets.enabled", "false"):
        table.note(
            "sync.group.offsets.enabled",
            "false: MirrorMaker 2 only writes checkpoints. `reo offsets translate` and"
            " `reo offsets sync` translate on demand",
        )
    elif _build_regex(table, "groups", groups):
        table.into.values["offsets.sync_groups"] = groups
        table.put(interval, "offsets.sync_interval_s", int)
    table.drop(interval, "not used: sync.group.offsets.enabled is false")


def _convert_topic_configs(table: Table) -> None:
    table.into.values["topics.replication_factor"] = 2
    table.put("replication.factor", "topics.replication_factor", int)
    excluded = _take_list(
        table,
        "config.properties.exclude",
        table.left.pop("config.properties.blacklist", CONFIGS_EXCLUDED),
    )
    if _is_true(table, "sync.topic.configs.enabled", "true"):
        pattern = _build_regex(table, "config.properties.exclude", "|".join(excluded))
        table.into.values["topics.sync"] = ",".join(
            name for name in SYNCABLE if not (pattern and pattern.fullmatch(name))
        )
        table.note(
            "sync.topic.configs.enabled",
            "kept alike at each start, also where the source's brokers' default is in effect; other"
            " configurations when reo creates the topic, and by `reo topics --apply`",
        )
    table.drop("sync.topic.configs.interval.seconds", "at each start, and by `reo topics --apply`")
    if _is_true(table, "sync.topic.acls.enabled", "true"):
        table.note("sync.topic.acls.enabled", "on demand: `reo acls --apply` copies them")
    table.drop("sync.topic.acls.interval.seconds", "on demand: `reo acls --apply`")


def _convert_consumer(table: Table) -> None:
    """Raw options, those with the cluster before them last, because they win."""
    guards = get_guards("source.consumer_options")
    for prefix in ("consumer.", "source.consumer."):
        for key in [key for key in table.left if key.startswith(prefix)]:
            option, value = key.removeprefix(prefix), table.left[key]
            if key == "consumer.poll.timeout.ms":
                continue
            del table.left[key]
            if option == "auto.offset.reset" and value in ("earliest", "latest"):
                table.into.values["source.start"] = value
            elif option in guards and not guards[option].is_allowed(value):
                table.note(key, f"not imported: {guards[option].reason}")
            else:
                table.into.values[f"source.consumer_options.{option}"] = value


def _convert_producer(table: Table) -> None:
    for prefix in ("target.producer.", "producer.override."):
        table.put(f"{prefix}compression.type", "producer.compression_type", COMPRESSION.__getitem__)
        table.put(f"{prefix}linger.ms", "producer.linger_ms", lambda text: min(1000, int(text)))
        for key, expected, why in (
            ("acks", ("all", "-1"), "always all: with less, an acknowledged record can be lost"),
            ("enable.idempotence", ("true",), "always true, because exactly once needs it"),
        ):
            if table.left.pop(f"{prefix}{key}", "true" if key != "acks" else "all") not in expected:
                table.note(f"{prefix}{key}", why)


def _convert_exactly_once(table: Table) -> None:
    key = "target.cluster.exactly.once.source.support"
    if (table.take(key) or "disabled").lower() != "enabled":
        table.note(
            key.removeprefix("target.cluster.") if key not in table.names else key,
            "was not enabled, so what MirrorMaker 2 has copied may have records twice. reo goes on"
            " only after an exact copy (docs/how-to/from-mirrormaker.md): copy to a new topic",
        )
