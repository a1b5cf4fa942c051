"""What goes over beside the records, on request: what the settings say of it, and what does not go together with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common import filters, tables

if TYPE_CHECKING:
    from common.settings import Settings

GROUPS = "offsets.sync_groups"


def validation_errors(settings: Settings) -> Iterator[str]:
    """One message for each error."""
    if not settings.text(GROUPS):
        return
    try:
        re.compile(settings.text(GROUPS))
    except re.error as reason:
        yield f"{GROUPS}: {settings.text(GROUPS)!r} is not a regular expression: {reason}"
    yield from (f"{GROUPS} and {name}: the copy differs from the source as intended, so offsets have no exact place there"
                for name in filters.SETTINGS if settings.text(name))
    if tables.named(settings):
        yield f"{GROUPS} and {tables.CONNECTION}: a table has the source's own offsets, and no consumer groups"
