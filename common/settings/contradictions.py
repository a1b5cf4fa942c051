"""Settings that are valid one by one and not together, like `source.topic` beside `topics`; and
values whose form another setting decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from common import partition_mapping, topic_rules
from common.kafka import copied_configs, msk_iam
from common.settings import client_options
from common.settings.clusters import Cluster
from common.settings.destination_kind import is_outside_kafka
from common.settings.refusal import Refusal
from common.settings.schema import (
    BY_NAME,
    OPTION_TABLES,
    SETTINGS,
    build_candidate_setting_name,
)
from common.settings.security import Security
from common.settings.settings import CLUSTER_SEPARATOR, Settings, list_own_security

ONE_TOPIC = ("source.topic", "destination.topic", "intermediate.topic")
"""The settings of the one-topic form; `topics` is the other."""
ADDRESS = re.compile(
    r"(?i:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})"
)
PORT_MAX = 65_535
SIDES = ("source", "destination")
STANDALONE = re.compile(r"spark://[^\s/,:]+:[0-9]{1,5}(,[^\s/,:]+:[0-9]{1,5})*")
"""Several addresses are one cluster with standby masters."""
KUBERNETES = re.compile(r"k8s://https?://[^\s/,]+")
"""The address of the API server; in a pod `k8s://https://kubernetes.default.svc`."""
IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
EXTENSIONS = re.compile(r"(?!auth=)[A-Za-z]+=[!-+\--~]+(,(?!auth=)[A-Za-z]+=[!-+\--~]+)*")
"""RFC 7628, section 3.1, without commas in values; `auth` has the token."""
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----"
"""PKCS #8, the one form that both clients read (KIP-651); not encrypted, because Java 17 cannot
give Kafka the key of PBES2, which is what OpenSSL writes.
"""


def find_contradictions(settings: Settings, wrong: Container[str]) -> Iterator[Refusal]:
    """What the topics' names contradict is unknown when one of them is `wrong`."""
    if not any(name in wrong for name in (*ONE_TOPIC, "topics")):
        yield from _check_rules(settings) if settings.topics_ else _check_topics(settings)
    for name in OPTION_TABLES:
        yield from client_options.find_refusals(
            name, settings.get_options(name), settings.allow_unsafe_options
        )
    for cluster in (*settings.sources, settings.destination_cluster):
        own = any(list_own_security(settings.values, cluster.number).values())
        prefix = build_candidate_setting_name(cluster.number, "") if own else f"{cluster.name}."
        yield from _check_security(cluster.security, prefix)
        yield from _check_addresses(cluster)
    yield from _check_candidates(settings)
    yield from _check_user_code(settings)
    if is_outside_kafka(settings):
        yield from _check_outside_kafka(settings)
    yield from _check_unused(settings)
    yield from _check_synced(settings)
    yield from _check_schemas(settings)
    yield from _check_stages(settings)


def _check_rules(settings: Settings) -> Iterator[Refusal]:
    set_names = [name for name in ONE_TOPIC if settings.values[name]]
    if set_names:
        names = _mark(set_names)
        yield Refusal(
            f"{{topics}} and {names} contradict each other: several topics, or one. The rules are"
            " {rules}",
            rules=", ".join(map(str, settings.rules)),
        )
    if not settings.values["application"]:
        yield Refusal(
            "{application} is missing: with several topics it has no default, and the frontiers of"
            " all of them are kept under it"
        )
    for reason in topic_rules.find_errors(settings.rules):
        yield Refusal("{topics}: {reason}", reason=reason)


def _check_topics(settings: Settings) -> Iterator[Refusal]:
    """Errors in the names alone; all others need the clusters' answers (`topic_fitness`)."""
    topics = (settings.source_topic, settings.destination_topic, settings.intermediate_topic)
    illegal = {
        name: topic
        for name, topic in zip(ONE_TOPIC, topics, strict=True)
        if not topic_rules.TOPIC_NAME.fullmatch(topic)
    }
    # a name that follows from one that is set is no second error
    for name in [name for name in illegal if settings.values[name]] or list(illegal)[:1]:
        yield Refusal("{}: {topic!r} {why}", name, topic=illegal[name], why=topic_rules.LEGAL)
    source, copy, between = topics
    if between == copy:
        yield Refusal("{intermediate.topic} and {destination.topic} are both {topic!r}", topic=copy)
    if between == source and settings.destination.bootstrap_servers in _list_servers(settings):
        yield Refusal("{intermediate.topic} and {source.topic} are both {topic!r}", topic=source)


def _check_addresses(cluster: Cluster) -> Iterator[Refusal]:
    """Without a port, stage one's client fails and stage two's assumes 9092."""
    for address in map(str.strip, cluster.bootstrap_servers.split(",")):
        match = ADDRESS.fullmatch(address)
        if not match or not 0 < int(match[1]) <= PORT_MAX:
            yield Refusal(
                "{}: {address!r} is no address of a broker: host:port is expected, with a port"
                f" from 1 to {PORT_MAX}",
                f"{cluster.name}.bootstrap_servers",
                address=address,
            )


def _check_security(security: Security, prefix: str) -> Iterator[Refusal]:
    """`prefix` is what the names of the settings begin with."""
    decided_by = prefix + security.decided_by
    because = f"{{}} is {getattr(security, security.decided_by)}"
    for need in security.way.needs:
        if not getattr(security, need):
            yield Refusal(f"{{}} is missing: {because}", prefix + need, decided_by)
    for name in security.list_unused():
        by = security.decided_by if name.startswith("sasl_") else "security_protocol"
        text = f"{{}} would not be used: {{}} is {getattr(security, by)}"
        yield Refusal(text, prefix + name, prefix + by)
    if security.has_iam and not msk_iam.is_installed():
        yield Refusal(
            "{} is AWS_MSK_IAM, and the library that signs its tokens is missing: pip install"
            " 'reo[msk]', then `reo setup`; for the image, build it with --build-arg MSK=1",
            f"{prefix}sasl_mechanism",
        )
    url, extensions = security.sasl_oauth_token_url, security.sasl_oauth_extensions
    if not re.fullmatch(r"(https?://[^\s,]+)?", url):
        text = "{}: https://… is expected, not {given!r}"
        yield Refusal(text, f"{prefix}sasl_oauth_token_url", given=url)
    if extensions and not EXTENSIONS.fullmatch(extensions):
        text = "{}: name=value,… is expected, each name of letters, not {given!r}"
        yield Refusal(text, f"{prefix}sasl_oauth_extensions", given=extensions)
    if bool(security.ssl_certificate_file) != bool(security.ssl_key_file):
        pair = (f"{prefix}ssl_certificate_file", f"{prefix}ssl_key_file")
        yield Refusal("{} and {} belong together: give both or neither", *pair)
    for name in (name for name in security.list_set("") if name.endswith("_file")):
        unfit = _describe_unfit(getattr(security, name), KEY if "key" in name else CERTIFICATE)
        if unfit:
            yield Refusal("{}: {unfit}", f"{prefix}{name}", unfit=unfit)


def _describe_unfit(file: str, mark: str) -> str:
    """Why a PEM file cannot be used; nothing of what is in it is said. Empty when it can."""
    try:
        if mark in Path(file).read_text(encoding="utf-8"):
            return ""
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "not text"
        return f"{file} cannot be read: {reason}"
    how = " (`openssl pkcs8 -topk8 -nocrypt` makes it of other keys)" if mark is KEY else ""
    return f"{file} has no {mark.strip('-').removeprefix('BEGIN ')} in PEM form{how}"


def _check_candidates(settings: Settings) -> Iterator[Refusal]:
    """A candidate is recognised by the records that were copied."""
    clusters = _list_servers(settings)
    if not all(clusters) or len(set(clusters)) < len(clusters):
        yield Refusal(
            "{source.bootstrap_servers}: a cluster between two"
            f" {CLUSTER_SEPARATOR!r} is empty or named twice"
        )
    if len(clusters) > 1 and not settings.failover:
        yield Refusal(
            f"{{source.bootstrap_servers}} names {len(clusters)} clusters, and {{source.mode}} is"
            " single: set {source.mode}=failover if they have the same records"
        )
    if settings.failover and settings.deduplicator.without_frontier == "append":
        yield Refusal(
            "{source.mode}=failover and {deduplicator.without_frontier}=append: a candidate is"
            " known by the records of the copy, which have to be the only ones"
        )
    if settings.failover and any(rule.is_pattern for rule in settings.rules):
        yield Refusal(
            "{source.mode}=failover and a pattern: a topic that one candidate does not have yet"
            " looks like one that was deleted, and its records would be left out. Name the topics"
        )
    if settings.provenance.header.startswith("__"):
        yield Refusal("{provenance.header} may not begin with __: such headers are reo's own")
    if settings.failover and settings.provenance.header:
        yield Refusal(
            "{provenance.header} and {source.mode}=failover: the header names the cluster of a"
            " record, and stage two does not know which candidate it was"
        )
    if settings.source.backoff_min_ms > settings.source.backoff_max_ms:
        yield Refusal("{source.backoff_min_ms} is more than {source.backoff_max_ms}")


def _check_user_code(settings: Settings) -> Iterator[Refusal]:
    """`common.settings.user_code` imports the functions and the class."""
    class_ = settings.destination.class_
    if class_ and not partition_mapping.FUNCTION.fullmatch(class_):
        yield Refusal("{destination.class}: module:Class is expected, not {given!r}", given=class_)
    names, keywords = settings.filter.functions, settings.filter.keywords
    if not names and settings.filter.on_error != "stop":
        yield Refusal(
            "{filter.on_error} is 'park', but there is no {filter.function} that could fail"
        )
    for name in keywords:
        if name not in names:
            text = "{filter.options} has {name!r}, which is none of {filter.function}"
            yield Refusal(text, name=name)
    for name, times in Counter(names).items():
        if not partition_mapping.FUNCTION.fullmatch(name):
            yield Refusal("{filter.function}: module:function is expected, not {name!r}", name=name)
        elif times > 1:
            yield Refusal("{filter.function} names {name} {times} times", name=name, times=times)
        elif not isinstance(keywords.get(name, {}), dict):
            yield Refusal(
                "{filter.function} {name} cannot be used: an object is expected as its"
                " {filter.options}",
                name=name,
            )


def _check_outside_kafka(settings: Settings) -> Iterator[Refusal]:
    """What needs a destination topic."""
    name = "destination.class"
    if any(rule.mapping == partition_mapping.KEY for rule in settings.rules):
        yield Refusal("{} and the mapping key: a producer chooses its partitions", name)
    if settings.filter.on_error == "park":
        yield Refusal(
            "{} and {filter.on_error}=park: parked records are written to a topic in the"
            " transaction of the others",
            name,
        )
    if settings.topics.sync:
        yield Refusal("{} and {topics.sync}: there is no destination topic", name)
    if settings.offsets.sync_groups:
        text = "{} and {offsets.sync_groups}: only a destination topic has consumer groups"
        yield Refusal(text, name)
    if settings.provenance.header:
        yield Refusal(
            "{} and {provenance.header}: nothing is copied back from there, and records that came"
            " from the destination cluster would be left out",
            name,
        )
    if settings.destination.zero_timestamp != "refuse":
        yield Refusal(
            "{destination.zero_timestamp} would not be used: with {} timestamp 0 is written as it"
            " is",
            name,
        )
    if settings.destination.producer_options:
        yield Refusal(
            "{destination.producer_options} would not be used: with {} stage two has no producer",
            name,
        )


def _check_unused(settings: Settings) -> Iterator[Refusal]:
    for name in ("destination.options", "destination.connection", "destination.guarantee"):
        if settings.values[name] != BY_NAME[name].default and not settings.destination.class_:
            yield Refusal("{} would not be used: {destination.class} is not set", name)
    for setting in SETTINGS:
        if setting.candidate and settings.values[setting.name]:
            unused = "{} would not be used: "
            if not settings.failover:
                yield Refusal(unused + "{source.mode} is single", setting.name)
            elif setting.candidate > len(settings.sources):
                why = f"{{source.bootstrap_servers}} names {len(settings.sources)} clusters"
                yield Refusal(unused + why, setting.name)


def _check_synced(settings: Settings) -> Iterator[Refusal]:
    """Consumer groups and topic configurations that are kept in sync."""
    pattern = settings.offsets.sync_groups
    try:
        re.compile(pattern)
    except re.error as reason:
        yield Refusal(
            "{offsets.sync_groups}: {pattern!r} is not a regular expression: {reason}",
            pattern=pattern,
            reason=reason,
        )
    for name in settings.list_filters() if pattern else ():
        yield Refusal(
            "{offsets.sync_groups} and {}: the copy differs from the source as intended, so offsets"
            " have no exact place there",
            name,
        )
    if settings.topics.sync_interval_s and not settings.topics.synced_configs:
        yield Refusal("{topics.sync_interval_s} needs {topics.sync}: nothing is kept alike yet")
    for name in settings.topics.synced_configs:
        if name not in copied_configs.SYNCABLE:
            why = copied_configs.NOT_TAKEN_OVER.get(name, "")
            yield Refusal(
                "{topics.sync}: {name!r} cannot be kept alike{note}. It takes {others}",
                name=name,
                note=why and f" ({why})",
                others=", ".join(copied_configs.SYNCABLE),
            )


def _check_schemas(settings: Settings) -> Iterator[Refusal]:
    """The values are not shown: there can be a password in them."""
    urls = {f"schemas.{side}_url": getattr(settings.schemas, f"{side}_url") for side in SIDES}
    if any(urls.values()) and not all(urls.values()):
        yield Refusal("{} and {} belong together: give both or neither", *urls)
    for name, url in urls.items():
        if url and not _is_web_address(url):
            yield Refusal("{}: https://user:password@host:port/path is expected", name)


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its port, or of a bracket
        return False


def _check_stages(settings: Settings) -> Iterator[Refusal]:
    master, options = settings.replicator.master, settings.replicator.spark_options
    is_kubernetes = KUBERNETES.fullmatch(master) is not None
    if master and not is_kubernetes and not STANDALONE.fullmatch(master):
        yield Refusal(
            "{replicator.master}: spark://host:port or k8s://https://host:port is expected, not"
            " {master!r}",
            master=master,
        )
    if is_kubernetes and not any(options.get(image) for image in IMAGES):
        yield Refusal(
            f"{{replicator.spark_options}}: {IMAGES[0]} is missing: with {{master}} executors run"
            " in pods, of the image that stage one runs in",
            master=master,
        )
    if settings.deduplicator.session_timeout_ms > settings.deduplicator.transaction_timeout_ms:
        yield Refusal(
            "{deduplicator.session_timeout_ms} is longer than"
            " {deduplicator.transaction_timeout_ms}: the partitions of a dead worker would wait"
            " after its open transaction has ended. Set it to at most"
            " {deduplicator.transaction_timeout_ms}"
        )


def _list_servers(settings: Settings) -> list[str]:
    return [cluster.bootstrap_servers for cluster in settings.sources]


def _mark(names: Iterable[str]) -> str:
    """As names of settings in the text of a refusal."""
    return ", ".join(f"{{{name}}}" for name in names)
