"""Converts kafka-reo's config.yaml to settings of reo. The path of a key there is the name of an
environment variable of kafka-reo (`kafka.config.producer.linger-ms`), and these name our settings.

Its source: replicator/src/main/resources/config.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.settings.foreign_variables import KAFKA_REO_VARIABLES
from common.settings.schema import BY_ENVIRONMENT
from reo.importers.imported_settings import ImportedSettings


def import_settings(tree: Mapping[str, Any]) -> ImportedSettings:
    """The settings for what kafka-reo does with this configuration."""
    into = ImportedSettings("kafka-reo", dict(_flatten(tree)))
    for key in list(into.left):
        setting = BY_ENVIRONMENT.get(_get_variable(key))
        if setting:
            into.put(key, setting.name)
        elif _get_variable(key) in KAFKA_REO_VARIABLES:
            into.drop(re.escape(key), KAFKA_REO_VARIABLES[_get_variable(key)])
    into.end({})
    return into


def _get_variable(key: str) -> str:
    return re.sub("[.-]", "_", key).upper()


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, content in tree.items():
        if isinstance(content, Mapping):
            yield from _flatten(content, f"{prefix}{name.lower()}.")
        else:
            yield f"{prefix}{name.lower()}", content
