"""Which routes can be compared with their source by the data alone: those that are one to one.

With a mapping, or with several source topics, a destination partition is not the copy of one source
partition: there is neither an order to compare nor an offset to search. With a filter the copy
lacks records, and with a provenance header its records have more than the source's, both as
intended. When `reo verify` and `reo recover` cannot answer, they say so with an exit code of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping

from common import filters
from common.errors import NotComparable
from common.kafka.topics import Topic
from common.routes import SAME, Route
from common.settings import Settings


def select_comparable(
    settings: Settings, sources: Mapping[Route, Topic]
) -> tuple[dict[Route, Topic], list[NotComparable]]:
    """The routes that are one to one and copied whole, and for each other route why it is left
    out.
    """
    filter_settings = filters.list_filter_settings(settings)
    if filter_settings:
        why = (
            f"{' and '.join(filter_settings)} {'is' if len(filter_settings) == 1 else 'are'} set,"
            " so the copy differs from the source as intended"
        )
        return {}, [
            NotComparable(f"{route} cannot be compared with its source: {why}") for route in sources
        ]
    return (
        {route: source for route, source in sources.items() if route.is_one_to_one},
        [_build_not_comparable(route) for route in sources if not route.is_one_to_one],
    )


def _build_not_comparable(route: Route) -> NotComparable:
    why = (
        f"with the mapping {route.mapping}"
        if route.mapping != SAME
        else "with several source topics"
    )
    return NotComparable(
        f"{route} cannot be compared with its source: {why}, a destination partition is not the"
        " copy of one source partition"
    )
