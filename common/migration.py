"""What goes over beside the records, on request: what the settings say of it, and what does not go together with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common import filters, tables, topic_config

if TYPE_CHECKING:
    from common.settings import Settings

GROUPS = "offsets.sync_groups"
CONFIGS = "topics.sync"


def synced_configs(settings: Settings) -> list[str]:
    """The topic configurations that are kept alike."""
    return [name for name in map(str.strip, settings.text(CONFIGS).split(",")) if name]


def validation_errors(settings: Settings) -> Iterator[str]:
    """One message for each error."""
    if settings.text(GROUPS):
        try:
            re.compile(settings.text(GROUPS))
        except re.error as reason:
            yield f"{GROUPS}: {settings.text(GROUPS)!r} is not a regular expression: {reason}"
        yield from (f"{GROUPS} and {name}: the copy differs from the source as intended, so offsets have no exact place there"
                    for name in filters.SETTINGS if settings.text(name))
        if tables.named(settings):
            yield f"{GROUPS} and {tables.CONNECTION}: a table has the source's own offsets, and no consumer groups"
    configs = synced_configs(settings)
    for name in configs:
        if name not in topic_config.SYNCABLE:
            why = f" ({topic_config.NOT_OVER[name]})" if name in topic_config.NOT_OVER else ""
            yield f"{CONFIGS}: {name!r} cannot be kept alike{why}. It takes {', '.join(topic_config.SYNCABLE)}"
    if configs and tables.named(settings):
        yield f"{CONFIGS} and {tables.CONNECTION}: there is no destination topic"
