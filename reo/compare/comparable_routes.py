"""Which routes can be compared with their source by the data alone: those that are one to one.

With a mapping, or with several source topics, a destination partition is not the copy of one source
partition: there is neither an order to compare nor an offset to search. With a filter the copy
lacks records, and with a provenance header its records have more than the source's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka.admin import AdminClient

from common.errors import NotComparable, TopicMissing
from common.kafka import source_topics, topics
from common.kafka.topics import Topic
from common.routes import SAME, Route
from common.settings import Settings


def select_comparable(
    settings: Settings, sources: Mapping[Route, Topic]
) -> tuple[dict[Route, Topic], list[NotComparable]]:
    """The routes that are one to one and copied whole, and for each other route why it is left
    out.
    """
    reasons = {route: _explain(settings, route) for route in sources}
    return {route: source for route, source in sources.items() if not reasons[route]}, [
        NotComparable(f"{route} cannot be compared with its source: {why}")
        for route, why in reasons.items()
        if why
    ]


def find_comparable(
    settings: Settings, source_admin: AdminClient
) -> tuple[dict[Route, Topic], list[NotComparable]]:
    """As `select_comparable`, of the sources as they are now; TopicMissing when a topic that the
    settings name does not exist.
    """
    return select_comparable(
        settings, source_topics.describe_sources(settings, source_admin, settings.connect_timeout_s)
    )


def look_up_copies(
    settings: Settings, destination_admin: AdminClient, names: Collection[str]
) -> tuple[dict[str, Topic], dict[str, TopicMissing]]:
    """The destination topics that exist, and the error of each other one."""
    copies = topics.look_up(
        settings.destination_cluster, destination_admin, names, settings.connect_timeout_s
    )
    return copies, {
        name: TopicMissing(
            f"the destination topic {name} does not exist: nothing was copied to it yet, or it was"
            " deleted since, and the copy begins again. Start the service"
        )
        for name in names
        if name not in copies
    }


def _explain(settings: Settings, route: Route) -> str:
    """Why a route cannot be compared; empty when it can."""
    if filters := settings.list_filters():
        verb = "is" if len(filters) == 1 else "are"
        return (
            f"{' and '.join(filters)} {verb} set, so the copy differs from the source as intended"
        )
    if route.is_one_to_one:
        return ""
    why = f"the mapping {route.mapping}" if route.mapping != SAME else "several source topics"
    return f"with {why}, a destination partition is not the copy of one source partition"
