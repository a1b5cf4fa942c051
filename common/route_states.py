"""Routes that are halted: nothing of them is read, while the others go on. A user has paused one
(`reo pause`), or with `on_stop=route` an error that is its own has stopped it.

A state is the metadata of a committed offset, as all that reo keeps: that of partition 0 of the
route's intermediate topic, in a consumer group of its own, `<application>-routes`. That group has
no members, so the command and the stages can commit to it at any time, and nothing of it belongs to
a frontier. A route without a state runs.

Only `reo resume` ends a halt. The brokers delete the offsets of a group without members after
`offsets.retention.minutes`, and with a topic; so a process that knows a state commits it again when
the group has lost it, or has an older one, from a process that stood still. Of two states the one
with the later time is the newer one. A halt is lost only with the frontiers: when no process runs
for so long.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import orjson

from common import clock
from common.background_probe import Probe
from common.errors import (
    ClusterUnreachable,
    FrontierUnreadable,
    HangingTransaction,
    LagsBehind,
    ReoError,
    ServiceRuns,
    Stop,
    replace_surrogates,
)
from common.kafka import partition_offsets
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.consumer_group import Commit, ConsumerGroup, create_commit_reader
from common.kafka.coordinator_client import CoordinatorClient
from common.metrics import HALTED
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
VERSION = 1
INTERVAL_S = 1.0
"""How often a stage asks for the states."""
PATIENCE_S = 10.0
RETRY_S = 0.2
WHO_LENGTH_MAX = 200
TEXT_LENGTH_MAX = 800
"""Of an error: brokers keep 4,096 bytes of metadata by default."""
EXCEPT_HALTED = ", except of topics that are halted"
Kind = Literal["running", "paused", "stopped"]
KINDS: tuple[Kind, ...] = ("running", "paused", "stopped")


class RouteState(NamedTuple):
    """Whether a route is halted, and by whom."""

    kind: Kind
    at_ms: int
    """Since when, in milliseconds since 1970 UTC."""
    by: str
    """User and host."""
    exit_code: int = 0
    """Of the error that has stopped it."""
    text: str = ""
    """What that error says."""

    @property
    def is_halted(self) -> bool:
        """Whether nothing of it is read."""
        return self.kind != "running"

    def encode(self) -> str:
        """The metadata string."""
        return orjson.dumps(
            {
                "v": VERSION,
                "s": self.kind,
                "at": self.at_ms,
                "by": self.by,
                "c": self.exit_code,
                "t": self.text,
            }
        ).decode()

    def __str__(self) -> str:
        """As text for a person."""
        since = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        why = f" (exit code {self.exit_code}): {self.text}" if self.text else ""
        return f"{self.kind} since {since:%Y-%m-%d %H:%M:%S} UTC, by {self.by}{why}"


def decode(metadata: str) -> RouteState:
    """The state in a metadata string; ValueError when it is not one."""
    fields = orjson.loads(metadata)
    if not isinstance(fields, dict) or fields.get("v") != VERSION or fields.get("s") not in KINDS:
        raise ValueError(f"version {VERSION} of a route's state is expected")
    return RouteState(
        fields["s"], int(fields["at"]), str(fields["by"]), int(fields["c"]), str(fields["t"])
    )


def find_next_ms(before: Iterable[RouteState]) -> int:
    """The time of a state that follows these, whatever the clocks of their hosts say."""
    return max([round(clock.time() * 1000), *(state.at_ms + 1 for state in before)])


def describe_user() -> str:
    """Who runs this process, and where."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = f"uid {os.getuid()}"
    return replace_surrogates(f"{name}@{socket.gethostname()}")[:WHO_LENGTH_MAX]


class RouteStates(ConsumerGroup):
    """The states of a service's routes, at the destination cluster."""

    def __init__(self, settings: Settings) -> None:
        name = settings.routes_group
        super().__init__(CoordinatorClient(settings.destination_cluster, settings), name)
        self.reader = create_commit_reader(
            settings.destination_cluster, settings, **{"group.id": name}
        )

    def read(
        self, topics: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, RouteState]:
        """By intermediate topic, the states of those that have one; a translated error when no
        answer comes.
        """
        commits = partition_offsets.read_committed(
            self.reader,
            [TopicPartition(topic, 0) for topic in topics],
            timeout_s,
            "the states of routes",
        )
        states = {}
        for tp, (_, metadata) in commits.items():
            try:
                states[tp.topic] = decode(metadata or "")
            except (ValueError, KeyError, TypeError):
                raise FrontierUnreadable(
                    f"the offset of {tp} in group {self.name} carries no state of a route:"
                    " another application, or a newer version of reo, commits with this group",
                    "End that one, and delete the group (kafka-consumer-groups.sh): then no route"
                    " is paused",
                ) from None
        return states

    def write(self, states: Mapping[str, RouteState]) -> None:
        """Commit states; TopicMissing when an intermediate topic does not exist."""
        self.commit(
            {TopicPartition(topic, 0): Commit(0, one.encode()) for topic, one in states.items()}
        )

    def build_busy_error(self) -> ReoError:
        """Nobody of reo's joins it."""
        return ServiceRuns(
            f"group {self.name} has members, and reo keeps there which routes are paused",
            "End these consumers, and give them another group.id",
        )


def list_halted(states: Mapping[str, RouteState], routes: Iterable[Route]) -> dict[str, RouteState]:
    """Those of these routes that are halted, by source topic."""
    return {
        route.source_topic: states[route.intermediate_topic]
        for route in routes
        if route.intermediate_topic in states and states[route.intermediate_topic].is_halted
    }


def describe_halted(halted: Mapping[str, RouteState]) -> str:
    """As text for a person."""
    return "; ".join(f"{topic} is {state}" for topic, state in sorted(halted.items()))


def build_waiting_error(halted: Mapping[str, RouteState]) -> ReoError:
    """For whom waits for the end of routes that are halted: with the exit code of the first one
    that an error has stopped.
    """
    codes = [state.exit_code for _, state in sorted(halted.items()) if state.exit_code]
    kind = ReoError.by_exit_code[codes[0]] if codes else LagsBehind
    return kind(
        f"{describe_halted(halted)}: what waits there is not copied",
        f"`reo resume {' '.join(sorted(halted))}`, or leave it out (--topic)",
    )


class HaltedRoutes:
    """The states as a process of a stage knows them; a thread asks for them once a second."""

    def __init__(self, settings: Settings) -> None:
        self.states = RouteStates(settings)
        self.can_stop = settings.on_stop == "route"
        self.routes: dict[str, Route] = {}
        """Those that are asked for, by intermediate topic."""
        self.stopped: dict[str, RouteState] = {}
        """Those of routes that this process has stopped, by intermediate topic."""
        self.probe = Probe[dict[str, RouteState]](self._ask, {}, PATIENCE_S)

    def start(self, routes: Iterable[Route], on_waiting: Callable[[], object]) -> None:
        """Wait for the first answer; `on_waiting` is called while there is none."""
        self.add(routes)
        while True:
            try:
                self.probe.answer = self._ask()
                break
            except (ClusterUnreachable, HangingTransaction) as unreachable:
                log.warning("which routes are paused cannot be read yet: %s", unreachable)
                on_waiting()
                clock.sleep(RETRY_S)
        if self.halted:
            log.info("%s: only `reo resume` ends it", describe_halted(self.halted))
        self.probe.start("route states", INTERVAL_S)

    def add(self, routes: Iterable[Route]) -> None:
        """Ask for these, too."""
        self.routes = self.routes | {route.intermediate_topic: route for route in routes}

    @property
    def known(self) -> dict[str, RouteState]:
        """The states by intermediate topic, as far as they are known."""
        answer = self.probe.answer  # the thread replaces it
        return answer | _list_newer(self.stopped, answer)

    @property
    def topics(self) -> frozenset[str]:
        """The intermediate topics of the routes that are halted."""
        return frozenset(topic for topic, state in self.known.items() if state.is_halted)

    @property
    def halted(self) -> dict[str, RouteState]:
        """The routes that are halted, by source topic."""
        return list_halted(self.known, self.routes.values())

    @property
    def is_answered(self) -> bool:
        """Whether the destination has answered lately."""
        return self.probe.has_answered

    def stop(self, error: Stop) -> None:
        """Halt the route that this error is of. Raises it when the whole service has to end: it is
        of no single route, `on_stop` is `service`, or all other routes are stopped already.
        """
        known = self.known
        routes = {
            topic: route
            for topic, route in self.routes.items()
            if error.topic in (topic, route.source_topic, route.destination_topic)
        }
        others = [known.get(topic) for topic in self.routes.keys() - routes.keys()]
        if not (self.can_stop and error.topic and routes) or all(
            state is not None and state.kind == "stopped" for state in others
        ):
            raise error
        new = [topic for topic in routes if topic not in self.topics]
        if not new:
            return
        text = " ".join(f"{type(error).__name__}: {error}".split())[:TEXT_LENGTH_MAX]
        state = RouteState(
            "stopped",
            find_next_ms(known[topic] for topic in new if topic in known),
            describe_user(),
            error.exit_code,
            text,
        )
        names = " ".join(sorted(routes[topic].source_topic for topic in new))
        log.error(
            "%s. Only this route stops (%s); when the cause is repaired: reo resume %s",
            text,
            ", ".join(str(routes[topic]) for topic in new),
            names,
            extra={"facts": {"error": type(error).__name__, "exit_code": error.exit_code}},
        )
        self.stopped = self.stopped | dict.fromkeys(new, state)  # the thread reads it
        self.probe.wake()

    def report(self) -> None:
        """Set the metric."""
        for topic, state in self.known.items():
            for kind in KINDS[1:]:
                HALTED.labels(self.routes[topic].source_topic, kind).set(kind == state.kind)

    def close(self) -> None:
        """End the thread."""
        self.probe.close()

    def _ask(self) -> dict[str, RouteState]:
        states = self.states.read(self.routes)
        newer = _list_newer(self.known, states)
        for topic, state in newer.items():
            try:
                self.states.write({topic: state})
            except ReoError as failed:  # its topic may be gone, too
                log.debug("the state of %s cannot be written now: %s", topic, failed)
        return states | newer


def _list_newer(
    states: Mapping[str, RouteState], others: Mapping[str, RouteState]
) -> dict[str, RouteState]:
    """Those that are newer than the others, or not among them."""
    return {
        topic: state
        for topic, state in states.items()
        if topic not in others or others[topic].at_ms < state.at_ms
    }
