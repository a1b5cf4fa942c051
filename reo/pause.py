"""`reo pause` and `reo resume`: halt routes, and let them go on (`common.route_states`). A service
that runs follows within seconds.
"""

from __future__ import annotations

from common import source_pool
from common.errors import SettingsInvalid, TopicMissing
from common.kafka import permissions, topic_creation, topics
from common.kafka.clients import create_admin_client
from common.route_states import Kind, RouteState, RouteStates, describe_user, find_next_ms
from common.routes import Route
from common.settings import Settings
from common.suggestions import suggest


def pause(settings: Settings, names: list[str]) -> int:
    """`reo pause`."""
    return _set_states(settings, names, "paused")


def resume(settings: Settings, names: list[str]) -> int:
    """`reo resume`."""
    return _set_states(settings, names, "running")


def _set_states(settings: Settings, names: list[str], kind: Kind) -> int:
    """Write the state of each route that has another one, and print what it was."""
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(settings, "pause")
    routes = _select_routes(settings, names)
    states = RouteStates(settings)
    before = states.read(route.intermediate_topic for route in routes)
    new = RouteState(kind, find_next_ms(before.values()), describe_user())
    # where there is no state, a process may know one that the group has lost
    changed = {
        topic: new
        for topic in (route.intermediate_topic for route in routes)
        if topic not in before or before[topic].kind != kind
    }
    try:
        states.write(changed)
    except TopicMissing:
        if kind != "running":
            raise
        # lost while it was paused, and the service creates it when it is resumed
        topic_creation.create_intermediate_topics(settings, routes)
        states.write(changed)
    never_halted = RouteState("running", 0, "")
    for route in routes:
        state = before.get(route.intermediate_topic, never_halted)
        if state.kind == kind:
            print(f"{route.source_topic}: {kind} already")
        else:
            was = f" (it was {state})" if state.is_halted else ""
            print(f"{route.source_topic}: {kind}{was}; the service follows in about two seconds")
    return 0


def _select_routes(settings: Settings, names: list[str]) -> list[Route]:
    """Those of these source topics; SettingsInvalid for one that no rule copies."""
    admin = create_admin_client(settings.source_cluster, settings)
    routes = {route.source_topic: route for route in topics.list_routes(settings, admin)}
    for name in names:
        if name not in routes:
            raise SettingsInvalid(
                f"no rule copies the topic {name}{suggest(name, routes)}",
                "Name source topics that this service copies",
            )
    return [routes[name] for name in dict.fromkeys(names)]
