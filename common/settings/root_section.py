"""The root of the settings, and its short sections: name, type, default, range, other names,
meaning of each.

The long sections are in `cluster_sections`, `stage_sections` and `security`. docs/reference.md and
the Helm chart's schema are made from them.

A setting has one dotted name: in the code `settings.section.key`, in a settings file `[section]
key`, in the environment `REO_SECTION_KEY` and, where kafka-reo has the same setting, also
kafka-reo's name. Two names have an underscore at their end in the code alone: `class` is a keyword
of Python, and `topics` is also a section. Defaults are kafka-reo's unless there is a reason against
it; the meaning then says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from common.settings.cluster_sections import Destination, Intermediate, Source
from common.settings.declaration import declare
from common.settings.stage_sections import Deduplicator, Producer, Replicator


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are copied."""

    sql: str = declare(
        "",
        "Only records for which this condition is true are copied: Spark's SQL over `key`, `value`,"
        " `headers`, `timestamp`, `partition`, `offset` and `topic`, applied in stage one, see"
        " [Filters](how-to/filter.md).",
    )
    function: str = declare(
        "",
        "Only records for which this Python function returns True are copied: `module:function`,"
        " called in stage two. Several, separated by commas: all of them have to return True.",
    )
    options: str = declare(
        "",
        'Keyword arguments of these functions: a JSON object like `{"module:function": {"name":'
        ' "value"}}`, in a settings file the tables `[filter.options."module:function"]`.',
        kind="object",
    )
    on_error: Literal["stop", "park"] = declare(
        "stop",
        "A record on which `filter.function` fails: `stop`, or `park` it on the topic `<destination"
        " topic>-parked`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a record came from."""

    header: str = declare(
        "",
        "Every copied record gets a header of this name with the id of the cluster that it was"
        " copied from; one that came from the destination is not copied back, see [Replication"
        " cycles](how-to/topics.md#replication-cycles).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Consumer groups."""

    sync_groups: str = declare(
        "",
        "Consumer groups of the source whose committed offsets the service keeps translated at the"
        " destination, as a regular expression that the whole name has to match, see [Move"
        " consumers](how-to/move-consumers.md#keep-groups-translated). Default: none.",
    )
    sync_interval_s: int = declare(60, "How often it translates them.", minimum=1, maximum=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that reo creates."""

    sync: str = declare(
        "",
        "Configurations of the source topics that their copies have too,"
        " `retention.ms,cleanup.policy`, see [Keep topics"
        " alike](how-to/topics.md#keep-topics-alike). Default: those that are set on the source"
        " topic, when the copy is created.",
    )
    replication_factor: int = declare(
        -1,
        "Of topics that reo creates; -1 is the broker's default (KIP-464).",
        "STREAMS_REPLICATION_FACTOR",
        minimum=-1,
        maximum=32767,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server."""

    address: str = declare(
        "",
        "The address that /metrics, /livez, /readyz and /status are served at. Default: all of this"
        " host's.",
    )
    port: int = declare(
        7081, "Port of /metrics, /livez, /readyz and /status; 0 takes a free one.", maximum=65_535
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log."""

    format: Literal["text", "json"] = declare("text", "One event a line: `text` or `json`.")
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = declare(
        "INFO", "Minimum level that is written."
    )
    progress_interval_s: int = declare(
        60,
        "How often the service logs how many records it has copied and what waits; 0: never.",
        minimum=0,
        maximum=86_400,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class Schema:
    """All sections, and the settings without a section, in the order of the reference."""

    application: str = declare(
        "",
        "Name of this copy: consumer group and prefix of the transactional ids. Default"
        " `reo-<destination topic>`.",
        "APPLICATION_NAME",
    )
    instance: str = declare(
        "",
        "Name of this instance: after a restart it takes its predecessor's place at once. Default:"
        " the host name.",
    )
    client_id: str = declare(
        "",
        "What the names of all clients begin with in the brokers' logs and quotas. Default: the"
        " application.",
    )
    source: Source
    destination: Destination
    intermediate: Intermediate
    allow_unsafe_options: bool = declare(
        False,
        "Pass raw options through that an exact copy does not survive. Every process then says so"
        " in its log.",
    )
    topics_: str = declare(
        "",
        "Several topics: `orders,invoices=copy,logs=all:3,^metrics-.*`, see [Many"
        " topics](how-to/topics.md); in a settings file the table `[topics]`, on the command line"
        " `--topic`. Instead of the three settings that name topics; `application` has no default"
        " then.",
    )
    filter: Filter
    provenance: Provenance
    offsets: Offsets
    topics: Topics
    producer: Producer
    replicator: Replicator
    deduplicator: Deduplicator
    metrics: Metrics
    log: Log
    connect_timeout_s: int = declare(
        30,
        "How long a start waits for a cluster before it says that it cannot be reached.",
        minimum=1,
        maximum=3600,
    )
    stop_at_end: bool = declare(
        False, "Copy what is there at the start, then end with exit code 0."
    )
