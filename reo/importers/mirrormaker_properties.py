"""MirrorMaker 2's configuration: a properties file with clusters and flows, or the JSON of its
connectors; either becomes the properties of one flow's connectors, as MirrorMaker 2 makes them.

Properties are read as java.util.Properties reads them. What a key of the file means depends on its
prefix (MirrorMakerConfig.connectorBaseConfig):

    A.x                  of a cluster; for the flow A->B it is source.cluster.x, for B->A
                         target.cluster.x
    A.consumer.x         of its clients; source.consumer.x, or target.consumer.x
    A->B.x               of a flow; wins over x, which is of all flows
    security.protocol, ssl.…, sasl.…   of every cluster that does not have its own

Kafka Connect's REST interface and Strimzi's operator have a configuration for each connector
instead, in JSON, with the names at the right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

CLUSTERS = re.compile(r"^[ \t]*clusters[ \t]*[=:]", re.MULTILINE)
ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
CLIENT = re.compile(r"(consumer|producer|admin)\.")
SECURITY = re.compile(r"security\.protocol|(ssl|sasl)\..*")
NOT_USED = "not-used/"
"""What the key of a property begins with that MirrorMaker 2 itself does not use."""
Properties = dict[str, str]


class Flow(NamedTuple):
    """The properties of one flow by their names in a connector's configuration, the names that
    the file has for them, and the other flows that are enabled.
    """

    properties: Properties
    names: dict[str, str]
    others: tuple[str, ...] = ()


def is_mirrormaker(file: str, text: str) -> bool:
    """Whether this is MirrorMaker 2's configuration, and not kaf-relay's TOML."""
    return (
        file.endswith(".properties")
        or text.lstrip().startswith("{")
        or CLUSTERS.search(text) is not None
    )


def read_flow(texts: Collection[str], chosen: str) -> Flow:
    """The flow of these files, of which a later one wins; ValueError when it cannot be told."""
    properties: Properties = {}
    are_connectors = [text.lstrip().startswith("{") for text in texts]
    for text, is_connector in zip(texts, are_connectors, strict=True):
        properties |= _parse_connector(text) if is_connector else parse_properties(text)
    return Flow(properties, {}) if any(are_connectors) else choose_flow(properties, chosen)


def parse_properties(text: str) -> Properties:
    """As java.util.Properties; without white space at the ends, which Kafka strips too."""
    properties = {}
    for line in _join_lines(text):
        entry = ENTRY.fullmatch(line)
        if entry:
            key, value = map(_replace_escapes, entry.groups())
            properties[key] = value.strip()
    return properties


def _join_lines(text: str) -> Iterator[str]:
    """The lines without comments, and with those that a backslash at the end continues."""
    joined = ""
    for written in re.split(r"\r\n|\r|\n", text):
        line = written.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield joined
            joined = ""
    if joined:
        yield joined


def _replace_escapes(text: str) -> str:
    def replace(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else ESCAPED.get(code, code)

    # two escapes of UTF-16 can be one character
    return ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _parse_connector(text: str) -> Properties:
    tree = json.loads(text)
    config = tree.get("config", tree)
    if not isinstance(config, Mapping) or not str(config.get("connector.class")).startswith(
        "org.apache.kafka.connect.mirror."
    ):
        raise ValueError(
            "a connector of MirrorMaker 2 is expected, with its connector.class, as Kafka Connect's"
            " GET /connectors/NAME/config prints it"
        )
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value).strip()
        for key, value in config.items()
    }


def choose_flow(properties: Properties, chosen: str) -> Flow:
    """The flow to import: `chosen`, or the only one that is enabled; ValueError when there is none,
    or there are several.
    """
    clusters = [name.strip() for name in properties.get("clusters", "").split(",") if name.strip()]
    if not clusters:
        raise ValueError("`clusters`, which names MirrorMaker 2's clusters, is missing")
    pairs = {f"{one}->{other}": (one, other) for one in clusters for other in clusters}
    flows = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    default = properties.get("enabled", "")
    enabled = [
        name for name in flows if properties.get(f"{name}.enabled", default).lower() == "true"
    ]
    if chosen and chosen not in flows:
        raise ValueError(f"there is no flow {chosen!r} among these clusters: {', '.join(clusters)}")
    if not chosen and len(enabled) != 1:
        raise ValueError(
            f"{len(enabled)} flows are enabled ({', '.join(enabled)}), and a service of reo copies"
            " in one direction: import each with --flow, like --flow 'A->B'"
            if enabled
            else "no flow is enabled: choose one with --flow, like --flow 'A->B'"
        )
    flow_name = chosen or enabled[0]
    source, target = flows[flow_name]
    aliases = {"source.cluster.alias": source, "target.cluster.alias": target}
    flow = Flow(aliases, {}, tuple(name for name in enabled if name != flow_name))
    # a later level wins
    levels = {"": "", source: "source", target: "target", flow_name: "flow"}
    for owner, level in levels.items():
        for written, value in properties.items():
            prefix, key = _split_prefix(written, [*pairs, *clusters])
            for name in _list_names(level, key) if prefix == owner else ():
                flow.properties[name], flow.names[name] = value, written
    return flow


def _split_prefix(written: str, prefixes: list[str]) -> tuple[str, str]:
    """The flow or cluster that a key begins with, if any, and the rest."""
    for prefix in prefixes:
        if written.startswith(f"{prefix}."):
            return prefix, written.removeprefix(f"{prefix}.")
    return "", written


def _list_names(level: str, key: str) -> list[str]:
    """What the key of a level is called in a connector's configuration."""
    if key == {"flow": "enabled", "": "clusters"}.get(level):
        return []
    if level in ("source", "target"):
        return [f"{level}.{key}" if CLIENT.match(key) else f"{level}.cluster.{key}"]
    if not level and SECURITY.fullmatch(key):
        return [f"{side}.cluster.{key}" for side in ("source", "target")]
    is_client = CLIENT.match(key) and key != "consumer.poll.timeout.ms"
    if SECURITY.fullmatch(key) or (not level and is_client):
        return [NOT_USED + key]
    return [key]
