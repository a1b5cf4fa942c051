"""Schema ids: a serializer for a schema registry puts a zero and the id of the schema, four bytes,
before the data (the wire format of Confluent's serializers). The copy keeps them, so the registry
that its consumers use has to have the same schemas under these ids.

The last records of some partitions of each topic are read. Ids alone are a warning: whether they
are right is known when both registries are (`schemas.source_url`, `schemas.destination_url`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPBasicAuthHandler, HTTPPasswordMgrWithPriorAuth, build_opener

import orjson

from common.kafka.clients import create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.partition_offsets import list_bounds
from common.kafka.route_topics import RouteTopics
from common.kafka.source_topics import list_source_partitions
from common.kafka.visible_records import FROM_BEGINNING, PARTITIONS_MAX, read_visible
from common.settings import destination_kind
from common.settings.schema import Schemas
from reo.checks.findings import Finding, report_ok, report_warning

Schema = tuple[str, object, object]
"""Its kind, the schema itself, and what it refers to."""
MAGIC, HEAD_BYTES, LONG_BYTES = 0, 5, 8
ID_MAX = 9_999_999
"""Registries count from 1, Confluent Cloud from 100,001; what begins with a zero and is something
else mostly gives another number.
"""
LAST_OFFSETS = 10
"""So many of a partition are read; some can be markers."""
PAGE = "docs/how-to/schemas.md"


def find_schema_id(data: bytes | None) -> int | None:
    """The id at the beginning of a key or a value; None when there is none. Eight bytes are taken
    to be a whole number of Kafka's LongSerializer.
    """
    if data is None or len(data) <= HEAD_BYTES or len(data) == LONG_BYTES or data[0] != MAGIC:
        return None
    number = int.from_bytes(data[1:HEAD_BYTES], "big")
    return number if 0 < number <= ID_MAX else None


def check_schemas(state: RouteTopics) -> Iterator[Finding]:
    """Nothing where no record has an id, or a class has the copy."""
    if destination_kind.is_outside_kafka(state.settings):
        return
    urls = state.settings.schemas
    for topic, ids in sorted(_read_schema_ids(state).items()):
        about, names = f"schemas of {topic}", ", ".join(map(str, sorted(ids)))
        if not urls.source_url:
            yield report_warning(
                about,
                f"records begin with a schema id ({names}), which the copy keeps: consumers of the"
                " copy need a registry with the same schemas under the same ids",
                f"{PAGE} says how; with schemas.source_url and schemas.destination_url they are"
                " compared",
            )
            continue
        try:
            differences = [text for each in sorted(ids) if (text := _compare_schema(urls, each))]
        except OSError as failure:
            yield report_warning(
                about,
                f"the ids {names} cannot be compared: {failure}",
                "check schemas.source_url and schemas.destination_url",
            )
            continue
        if differences:
            yield report_warning(
                about,
                f"{'; '.join(differences)}: consumers cannot read such records, or misread them",
                f"{PAGE} says how ids are kept",
            )
        else:
            yield report_ok(about, f"both registries have the same schemas under the ids {names}")


def _compare_schema(urls: Schemas, schema_id: int) -> str:
    """What is wrong with a schema; empty when both registries have the same one."""
    at_source = _read_schema("source", urls.source_url, schema_id)
    at_destination = _read_schema("destination", urls.destination_url, schema_id)
    if at_source is None or at_destination is None:
        side = "source" if at_source is None else "destination"
        return f"schema {schema_id} is missing in the {side}'s registry"
    same = at_source == at_destination
    return "" if same else f"schema {schema_id} is another one in the destination's registry"


def _read_schema(side: str, url: str, schema_id: int) -> Schema | None:
    """A schema; None when the registry does not have it. OSError when it does not answer
    as Confluent's does (GET /schemas/ids/{id}); the message has no password.
    """
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    passwords = HTTPPasswordMgrWithPriorAuth()
    if parts.username:  # sent to this address alone, should it redirect
        user, password = unquote(parts.username), unquote(parts.password or "")
        passwords.add_password(None, bare, user, password, is_authenticated=True)
    try:
        opener = build_opener(HTTPBasicAuthHandler(passwords))
        with opener.open(f"{bare}/schemas/ids/{schema_id}", timeout=REQUEST_TIMEOUT_S) as answer:
            return _parse_schema(orjson.loads(answer.read()))
    except HTTPError as failure:
        if failure.code == HTTPStatus.NOT_FOUND:
            return None
        raise OSError(f"the {side}'s registry at {bare} answers {failure.code}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, HTTPException) as failure:
        text = f"the {side}'s registry at {bare} does not answer as expected: {failure}"
        raise OSError(text) from None


def _parse_schema(answer: Mapping[str, Any]) -> Schema:
    """Avro and JSON schemas are the same however they are written out; Protobuf is no JSON."""
    schema: object = answer["schema"]
    with suppress(orjson.JSONDecodeError):
        schema = orjson.loads(answer["schema"])
    return answer.get("schemaType") or "AVRO", schema, answer.get("references") or []


def _read_schema_ids(state: RouteTopics) -> dict[str, set[int]]:
    """By source topic, those in keys and values of the last records."""
    cluster, settings = state.settings.source_cluster, state.settings
    first, ends = list_bounds(
        state.source_admin, list_source_partitions(state.sources), committed_only=True
    )
    begins = {
        tp: end - LAST_OFFSETS if end - LAST_OFFSETS > first[tp] else FROM_BEGINNING
        for tp, end in sorted(ends.items(), key=lambda item: item[0].partition)
        if end > first[tp]
    }
    begins = dict(list(begins.items())[:PARTITIONS_MAX])
    found: dict[str, set[int]] = {}
    with closing(create_reader(cluster, settings)) as reader:
        for record in read_visible(reader, begins, REQUEST_TIMEOUT_S, ends):
            ids = {find_schema_id(data) for data in (record.key(), record.value())}
            found.setdefault(record.topic(), set()).update(filter(None, ids))
    return {topic: ids for topic, ids in found.items() if ids}
