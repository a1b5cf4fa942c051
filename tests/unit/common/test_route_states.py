"""Which errors stop one route, with `on_stop=route`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from common import route_states
from common.errors import (
    FilterFailed,
    ForeignRecord,
    SourceTruncated,
    Stop,
    TopicMissing,
    TopicsUnfit,
    of_topic,
)
from common.route_states import (
    TEXT_LENGTH_MAX,
    HaltedRoutes,
    RouteState,
    decode,
    describe_user,
    find_next_ms,
)
from common.routes import Route
from common.settings import load
from tests.unit.common.settings.test_settings import GOOD

A, B = Route("a", "copy-a", "copy-a-proxy"), Route("b", "copy-b", "copy-b-proxy")
PAUSED = RouteState("paused", 1, "somebody")
STOPPED = RouteState("stopped", 2, "somebody", 20, "SourceTruncated: b ends")


class Stored:
    """In place of the group at the destination."""

    def __init__(self, _: object) -> None:
        self.states: dict[str, RouteState] = {}

    def read(self, topics: Any) -> dict[str, RouteState]:
        """Those of these topics."""
        return {topic: decode(self.states[topic].encode()) for topic in topics & self.states.keys()}

    def write(self, states: Mapping[str, RouteState]) -> None:
        """Commit states."""
        self.states |= states


def create(monkeypatch: pytest.MonkeyPatch, on_stop: str, **states: RouteState) -> HaltedRoutes:
    """Of a service with two routes, which have these states, by source topic."""
    monkeypatch.setattr(route_states, "RouteStates", Stored)
    halted = HaltedRoutes(load({**GOOD, "REO_ON_STOP": on_stop}))
    halted.add([A, B])
    halted.states.write({f"copy-{name}-proxy": state for name, state in states.items()})
    halted.probe.run_once()
    return halted


@pytest.mark.parametrize("topic", ["a", "copy-a", "copy-a-proxy"])
def test_a_route_stops_alone_until_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """By any of its topics: known at once, committed with code and text, and known as long as it is
    committed.
    """
    halted = create(monkeypatch, "route")
    halted.stop(TopicsUnfit("long\n" * 1000, topic=topic))
    assert halted.topics == {"copy-a-proxy"}
    for _ in range(2):
        halted.probe.run_once()
        assert halted.halted.keys() == {"a"}
    state = halted.states.read({"copy-a-proxy"})["copy-a-proxy"]
    assert (state.kind, state.exit_code) == ("stopped", 13)
    assert state.text.startswith("TopicsUnfit: long long")
    assert len(state.text) <= TEXT_LENGTH_MAX
    halted.stop(TopicsUnfit("again", topic=topic))
    assert halted.halted["a"] == state
    halted.states.write({"copy-a-proxy": RouteState("running", state.at_ms + 1, "somebody")})
    halted.probe.run_once()
    assert not halted.topics


def test_a_process_that_stood_still_does_not_pause_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has lost the state, and the process has missed that the topic was resumed: one that
    knows the newer state commits that, and both go on with it.
    """
    stale, informed = (create(monkeypatch, "service", a=PAUSED) for _ in range(2))
    informed.states = stale.states
    informed.states.write({"copy-a-proxy": RouteState("running", PAUSED.at_ms + 1, "somebody")})
    informed.probe.run_once()
    informed.states.states.clear()  # type: ignore[attr-defined]
    stale.probe.run_once()
    assert stale.topics, "it knows nothing else"
    for one in (informed, stale):
        one.probe.run_once()
        assert not one.topics


def test_two_processes_stop_a_route_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each knows its own stop. The group takes the later one, both follow it, and a resume ends it
    for both.
    """
    one, other = (create(monkeypatch, "route") for _ in range(2))
    other.states = one.states
    for halted in (one, other):
        halted.stop(TopicsUnfit("LogAppendTime", topic="a"))
    one.stopped["copy-a-proxy"] = one.stopped["copy-a-proxy"]._replace(by="one", at_ms=1000)
    other.stopped["copy-a-proxy"] = one.stopped["copy-a-proxy"]._replace(by="other", at_ms=1004)
    for _ in range(3):
        for halted in (one, other):
            halted.probe.run_once()
    assert one.known == other.known == one.states.read({"copy-a-proxy"})
    assert one.known["copy-a-proxy"].at_ms == 1004
    one.states.write({"copy-a-proxy": RouteState("running", 5000, "somebody")})
    for _ in range(2):
        for halted in (one, other):
            halted.probe.run_once()
            assert not halted.topics
    assert one.states.read({"copy-a-proxy"})["copy-a-proxy"].kind == "running"


def test_a_stop_that_cannot_be_written_does_not_hide_other_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its intermediate topic is gone with its source: another topic is resumed all the same."""
    halted = create(monkeypatch, "route", b=PAUSED)
    halted.stop(TopicMissing("deleted", topic="a"))

    def write(_: object) -> None:
        raise TopicMissing("committing the offsets")

    states = cast(Any, halted.states)
    states.states["copy-b-proxy"] = RouteState("running", 9, "somebody")
    monkeypatch.setattr(states, "write", write)
    halted.probe.run_once()
    assert halted.halted.keys() == {"a"}


def test_a_new_state_is_newer_whatever_the_clocks_say() -> None:
    """That of the host with the last state was ahead."""
    ahead = PAUSED._replace(at_ms=10**15)
    assert find_next_ms([PAUSED, ahead]) == ahead.at_ms + 1
    assert PAUSED.at_ms < find_next_ms([PAUSED]) < ahead.at_ms


@pytest.mark.parametrize(
    ("on_stop", "topic", "other"),
    [
        pytest.param("service", "a", None, id="as is the default"),
        pytest.param("route", "", None, id="of no topic"),
        pytest.param("route", "other", None, id="of a topic of nobody"),
        pytest.param("route", "a", STOPPED, id="the last one"),
    ],
)
def test_the_service_ends(
    monkeypatch: pytest.MonkeyPatch, on_stop: str, topic: str, other: RouteState | None
) -> None:
    """And nothing is written."""
    halted = create(monkeypatch, on_stop, **({"b": other} if other else {}))
    before = halted.topics
    with pytest.raises(SourceTruncated):
        halted.stop(SourceTruncated("it ends", topic=topic))
    assert halted.topics == before


def test_a_paused_route_can_be_resumed_while_the_service_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the last one that runs beside it stops alone, too."""
    halted = create(monkeypatch, "route", b=PAUSED)
    halted.stop(SourceTruncated("it ends", topic="a"))
    assert halted.halted.keys() == {"a", "b"}


def test_an_error_in_the_work_for_a_topic_is_of_that_topic() -> None:
    """Unless it says another one itself."""
    for error, topic in ((ForeignRecord("x"), "here"), (ForeignRecord("x", topic="t"), "t")):
        with pytest.raises(Stop) as raised, of_topic("here"):
            raise error
        assert raised.value.topic == topic


def test_any_user_and_any_error_can_halt_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a name that are no UTF-8, and half a character that a user's function has raised."""
    monkeypatch.setenv("LOGNAME", "caf\udce9")
    assert describe_user().startswith(r"caf\udce9@")
    halted = create(monkeypatch, "route")
    halted.stop(FilterFailed("ValueError: \ud800", topic="a"))
    halted.probe.run_once()
    assert halted.probe.has_answered
    assert r"ValueError: \ud800" in halted.states.read(["copy-a-proxy"])["copy-a-proxy"].text
