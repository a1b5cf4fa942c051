"""`reo pause` and `reo resume`: halt routes, and let them go on (`common.route_states`). A service
that runs follows within seconds.
"""

from __future__ import annotations

from common import source_pool
from common.errors import SettingsInvalid, TopicMissing
from common.kafka import permissions, source_topics, topic_creation, topics
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
    _check_topics(settings, routes, kind)
    states = RouteStates(settings)
    before = states.read(route.intermediate_topic for route in routes)
    new = RouteState(kind, find_next_ms(before.values()), describe_user())
    # where there is no state, a process may know one that the group has lost
    changed = {
        topic: new
        for topic in (route.intermediate_topic for route in routes)
        if topic not in before or before[topic].kind != kind
    }
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


def _check_topics(settings: Settings, routes: list[Route], kind: Kind) -> None:
    """TopicMissing while one of the intermediate topics does not exist: no offset can be committed
    for it. One that was lost while its route was halted is created: the service does not.
    """
    admin = create_admin_client(settings.destination_cluster, settings)
    names = {route.intermediate_topic: route.source_topic for route in routes}
    missing = names.keys() - topics.look_up(settings.destination_cluster, admin, names).keys()
    if missing and kind == "running":
        topic_creation.create_intermediate_topics(settings, routes)
    elif missing:
        raise TopicMissing(
            f"the intermediate topic {min(missing)} does not exist: nothing of its source topic"
            f" {names[min(missing)]} was copied yet",
            "Start the service once, or leave the topic out of what is copied",
        )


def _select_routes(settings: Settings, names: list[str]) -> list[Route]:
    """Those of these source topics; SettingsInvalid for one that no rule copies."""
    admin = create_admin_client(settings.source_cluster, settings)
    routes = {route.source_topic: route for route in source_topics.list_routes(settings, admin)}
    for name in names:
        if name not in routes:
            raise SettingsInvalid(
                f"no rule copies the topic {name}{suggest(name, routes)}",
                "Name source topics that this service copies",
            )
    return [routes[name] for name in dict.fromkeys(names)]
