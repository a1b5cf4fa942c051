"""Checks of the settings that keep consumer groups and topic configurations in sync."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common import filters
from common.kafka import copied_configs

if TYPE_CHECKING:
    from common.settings import Settings

SYNC_GROUPS = "offsets.sync_groups"
SYNC_CONFIGS = "topics.sync"


def list_synced_configs(settings: Settings) -> list[str]:
    """The topic configurations that are kept in sync."""
    return [name for name in map(str.strip, settings.topics.sync.split(",")) if name]


def find_errors(settings: Settings) -> Iterator[str]:
    """One message for each error."""
    if settings.offsets.sync_groups:
        try:
            re.compile(settings.offsets.sync_groups)
        except re.error as reason:
            yield (
                f"{SYNC_GROUPS}: {settings.offsets.sync_groups!r} is not a regular expression:"
                f" {reason}"
            )
        yield from (
            f"{SYNC_GROUPS} and {name}: the copy differs from the source as intended, so offsets"
            " have no exact place there"
            for name in filters.list_filter_settings(settings)
        )
    for name in list_synced_configs(settings):
        if name not in copied_configs.SYNCABLE:
            note = (
                f" ({copied_configs.NOT_TAKEN_OVER[name]})"
                if name in copied_configs.NOT_TAKEN_OVER
                else ""
            )
            yield (
                f"{SYNC_CONFIGS}: {name!r} cannot be kept alike{note}. It takes"
                f" {', '.join(copied_configs.SYNCABLE)}"
            )
