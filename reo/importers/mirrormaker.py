"""Converts a flow of MirrorMaker 2 to settings of reo.

The properties have the names of a connector's configuration (`mirrormaker_properties`). A property
becomes a setting, or a note says why not: those without an equivalent are in `NO_EQUIVALENT`. What
MirrorMaker 2 does by default is converted as if the file had it.

Sources: MirrorSourceConfig, MirrorCheckpointConfig, MirrorConnectorConfig and the replication
policies of Kafka 4.3; the worker's and the clients' options in Kafka's documentation.
"""

from __future__ import annotations

import re

from common.kafka.copied_configs import SYNCABLE
from common.settings.client_options import get_guards
from common.topic_rules import TOPIC_NAME, Rule
from reo.importers.imported_settings import ImportedSettings
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
    r"sync\.topic\.acls\.interval\.seconds": "on demand: `reo acls --apply` copies them",
    rf"{NOT_USED}.*": (
        "MirrorMaker 2 does not use it either: clients' options have the cluster before them"
    ),
}
"""Properties without a setting: a regular expression of the name, and why. The first that fits."""


def import_settings(flow: Flow, with_secrets: bool = False) -> ImportedSettings:
    """The settings for what MirrorMaker 2 does for this flow."""
    into = ImportedSettings("MirrorMaker 2", flow.properties, with_secrets, flow.names)
    for key, value in flow.properties.items():
        if REFERENCE.search(value) and not key.endswith("sasl.jaas.config"):
            into.drop(re.escape(key), "its value is a reference, which reo does not resolve")
    for side, cluster in (("source", "source.cluster."), ("destination", "target.cluster.")):
        servers = into.left.pop(f"{cluster}bootstrap.servers", "")
        into.values[f"{side}.bootstrap_servers"] = ",".join(map(str.strip, servers.split(",")))
        convert_security(into, cluster, side)
    _convert_topics(into, flow.others)
    _convert_groups(into)
    _convert_topic_configs(into)
    _convert_consumer(into)
    _convert_producer(into)
    _check_exactly_once(into, flow.properties.get("target.cluster.alias", "<target>"))
    into.end(NO_EQUIVALENT)
    return into


def _check_exactly_once(into: ImportedSettings, target: str) -> None:
    """It is an option of the target's Connect worker (KIP-618): without the alias it has no
    effect.
    """
    key = "exactly.once.source.support"
    has_no_effect = into.left.pop(key, None) is not None
    is_enabled = into.left.pop(f"target.cluster.{key}", "disabled").lower() == "enabled"
    why = f"counts only with the target's alias ({target}.{key})" if has_no_effect else ""
    if not is_enabled:
        why += (
            f"{', so it ' if why else ''}was not enabled: what MirrorMaker 2 has copied may have"
            " records twice. reo goes on only after an exact copy"
            " (docs/how-to/from-mirrormaker.md): copy to a new topic"
        )
    if why:
        is_written = f"target.cluster.{key}" in into.names and not has_no_effect
        into.note(f"target.cluster.{key}" if is_written else key, why)


def _take_lists(into: ImportedSettings, name: str, default: str) -> tuple[list[str], list[str]]:
    """The regular expressions of what is included, and of what is excluded. An empty list is not
    the default.
    """
    excluded = into.left.pop(f"{name}.blacklist", default)
    texts = into.left.pop(name, ".*"), into.left.pop(f"{name}.exclude", excluded)
    one, other = ([part.strip() for part in text.split(",") if part.strip()] for text in texts)
    return one, other


def _build_pattern(included: list[str], excluded: list[str]) -> str:
    """One regular expression of whole names; empty when nothing is included."""
    without = f"(?!(?:{'|'.join(excluded)})$)" if excluded else ""
    return f"{without}(?:{'|'.join(included)})" if included else ""


def _compile(into: ImportedSettings, key: str, pattern: str) -> re.Pattern[str] | None:
    """None without a pattern, or when it is not one of Python's, which is noted."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as reason:
        into.note(key, f"{pattern!r} is not a regular expression of Python's: {reason}")
        return None


def _is_true(into: ImportedSettings, key: str, default: str) -> bool:
    return str(into.left.pop(key, default)).lower() == "true"


def _convert_topics(into: ImportedSettings, others: tuple[str, ...]) -> None:
    """Names become rules of their own; where there is a regular expression, all become one
    pattern, because no topic may fit two rules.
    """
    prefix, target = _convert_policy(into), into.left.pop("target.cluster.alias", "target")
    included, excluded = _take_lists(into, "topics", TOPICS_EXCLUDED)
    for other in others:
        into.note(
            other,
            "also enabled: a service of its own, imported with --flow"
            + ("" if prefix else "; for both directions of one topic see provenance.header"),
        )
    if all(map(TOPIC_NAME.fullmatch, included)):
        pattern = _compile(into, "topics.exclude", "|".join(excluded))
        for name in dict.fromkeys(included):
            if pattern and pattern.fullmatch(name):
                into.note("topics.exclude", f"{name} is excluded, so it is not imported")
            else:
                into.topics[name] = prefix + name
        return
    excluded += INTERNAL
    if prefix:  # what came from the other cluster
        end = prefix[-1:]
        excluded.append(f"(?:.*{re.escape(end)})?{re.escape(target + end)}.*")
    rule = Rule(f"^{_build_pattern(included, excluded)}", rf"{prefix}\g<0>" if prefix else "")
    if reason := next(iter(rule.find_errors()), None):
        into.note("topics", f"not imported, write the rule by hand: {reason}")
    else:
        into.topics[rule.source] = rule.destination


def _convert_policy(into: ImportedSettings) -> str:
    """What the names of the copies begin with."""
    policy = into.left.pop("replication.policy.class", "DefaultReplicationPolicy")
    alias = into.left.pop("source.cluster.alias", "")
    separator = into.left.pop("replication.policy.separator", ".")
    if policy.endswith("DefaultReplicationPolicy"):
        return f"{alias}{separator}"
    if not policy.endswith("IdentityReplicationPolicy"):
        into.note(
            "replication.policy.class",
            f"{policy} is unknown: the copies have the topics' own names, unless you change the"
            " rules",
        )
    return ""


def _convert_groups(into: ImportedSettings) -> None:
    pattern = _build_pattern(*_take_lists(into, "groups", GROUPS_EXCLUDED))
    interval = "sync.group.offsets.interval.seconds"
    if not _is_true(into, "sync.group.offsets.enabled", "false"):
        into.note(
            "sync.group.offsets.enabled",
            "false: MirrorMaker 2 only writes checkpoints. `reo offsets translate` and"
            " `reo offsets sync` translate on demand",
        )
    elif _compile(into, "groups", pattern):
        into.values["offsets.sync_groups"] = pattern
        into.put(interval, "offsets.sync_interval_s")
    into.drop(re.escape(interval), "not used: sync.group.offsets.enabled is false")


def _convert_topic_configs(into: ImportedSettings) -> None:
    into.values["topics.replication_factor"] = 2
    into.put("replication.factor", "topics.replication_factor")
    _, excluded = _take_lists(into, "config.properties", CONFIGS_EXCLUDED)
    interval = "sync.topic.configs.interval.seconds"
    if _is_true(into, "sync.topic.configs.enabled", "true"):
        pattern = _compile(into, "config.properties.exclude", "|".join(excluded))
        into.values["topics.sync"] = ",".join(
            name for name in SYNCABLE if not (pattern and pattern.fullmatch(name))
        )
        if into.values["topics.sync"]:
            into.values["topics.sync_interval_s"] = 600
            into.put(interval, "topics.sync_interval_s")
        into.note(
            "sync.topic.configs.enabled",
            "kept alike, also where the source's brokers' default is in effect; other"
            " configurations when reo creates the topic, and by `reo topics --apply`",
        )
    into.drop(re.escape(interval), "not used: no configuration is kept alike")
    if _is_true(into, "sync.topic.acls.enabled", "true"):
        into.note("sync.topic.acls.enabled", "on demand: `reo acls --apply` copies them")


def _convert_consumer(into: ImportedSettings) -> None:
    """Raw options, those with the cluster before them last, because they win."""
    guards = get_guards("source.consumer_options")
    for prefix in ("consumer.", "source.consumer."):
        for key in into.find(rf"{re.escape(prefix)}(?!poll\.timeout\.ms).*"):
            option, value = key.removeprefix(prefix), into.left.pop(key)
            if option == "auto.offset.reset" and value in ("earliest", "latest"):
                into.values["source.start"] = value
            elif option in guards and not guards[option].is_allowed(value):
                into.note(key, f"not imported: {guards[option].reason}")
            else:
                into.set(key, f"source.consumer_options.{option}", value)


def _convert_producer(into: ImportedSettings) -> None:
    for prefix in ("target.producer.", "producer.override."):
        into.put(f"{prefix}compression.type", "producer.compression_type")
        into.put(f"{prefix}linger.ms", "producer.linger_ms", lambda text: min(1000, int(text)))
        if into.left.pop(f"{prefix}acks", "all") not in ("all", "-1"):
            into.note(f"{prefix}acks", "always all: with less, an acknowledged record can be lost")
        if into.left.pop(f"{prefix}enable.idempotence", "true") != "true":
            into.note(f"{prefix}enable.idempotence", "always true, because exactly once needs it")
