"""OpenTelemetry's resource: the attributes by which a platform tells services apart, from the
environment variables that its specification names (Resource SDK, "Specifying resource information
via an environment variable").

    OTEL_RESOURCE_ATTRIBUTES    name=value,name=value; values are percent-encoded
    OTEL_SERVICE_NAME           the attribute service.name; wins over the same one above

Every event of a JSON log has them as `resource`, and /metrics as labels of `target_info`, as
OpenTelemetry's page on compatibility with Prometheus asks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from common.errors import replace_surrogates

VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"
SERVICE_NAME = "OTEL_SERVICE_NAME"


def _parse(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of each attribute; ValueError says what cannot be read."""
    for pair in filter(str.strip, text.split(",")):
        name, equals, value = map(str.strip, pair.partition("="))
        if not name or not equals or re.search(r"%(?![0-9A-Fa-f]{2})", value):
            raise ValueError(pair.strip())
        yield name, unquote(value, errors="strict")


def read_attributes(environment: Mapping[str, str]) -> dict[str, str]:
    """By name; empty when neither variable is set. Attributes that cannot be read count as not set,
    as the specification says, and `find_error` reports them.
    """
    attributes: dict[str, str] = {}
    with contextlib.suppress(ValueError):
        attributes = dict(_parse(replace_surrogates(environment.get(VARIABLE, ""))))
    if environment.get(SERVICE_NAME):
        attributes["service.name"] = replace_surrogates(environment[SERVICE_NAME])
    return attributes


def find_error(environment: Mapping[str, str]) -> str:
    """The message, when the attributes cannot be read; else empty."""
    try:
        dict(_parse(environment.get(VARIABLE, "")))
    except ValueError as wrong:
        return (
            f"{VARIABLE} has no effect: name=value,name=value is expected, with percent-encoded"
            f" values in UTF-8: {wrong}"
        )
    return ""


def build_labels(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes as Prometheus' labels: other characters than letters, digits and underscores
    become underscores; values of names that then are the same are joined by a semicolon.
    """
    labels: dict[str, str] = {}
    for name, value in sorted(attributes.items()):
        label = re.sub(r"[^a-zA-Z0-9_]", "_", name)
        label = f"key_{label}" if label[0].isdigit() else label
        labels[label] = f"{labels[label]};{value}" if label in labels else value
    return labels
