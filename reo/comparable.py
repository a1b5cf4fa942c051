"""Which routes can be held against their source by the data alone: those that are one to one.

With a mapping, or with other sources beside it, a destination partition is not one source partition's copy: neither is there an order to compare, nor a
place to look for. With a filter it lacks records, and with a provenance header its records have more than the source's, and rightly so. What `reo verify` and
`reo recover` cannot answer they say, with an exit code of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from common import filters
from common.errors import NotComparable
from common.routes import SAME, Route
from common.settings import Settings
from common.topics import Topic


def divided(settings: Settings, sources: Mapping[Route, Topic]) -> tuple[dict[Route, Topic], list[NotComparable]]:
    """The routes that are one to one and copied whole, and why the others are left out."""
    given = [name for name in filters.SETTINGS if settings.text(name)]
    if given:
        why = f"with {' and '.join(given)} it is not to have just what the source has, and its records do not tell what else"
        return {}, [NotComparable(f"{route} cannot be held against its source: {why}") for route in sources]
    return ({route: source for route, source in sources.items() if route.is_one_to_one},
            [_hidden(route) for route in sources if not route.is_one_to_one])


def _hidden(route: Route) -> NotComparable:
    why = f"with the mapping {route.mapping}" if route.mapping != SAME else "with other sources beside it"
    return NotComparable(f"{route} cannot be held against its source: {why}, a destination partition is not one source partition's copy")
