"""What is checked before the service runs: one list of checks. `reo check` runs all of them and
prints what each has found; a start raises the first error, so that a start that is refused has
created nothing. No check changes anything.

A check yields findings: what was seen and, unless all is right, what to do. What the principal may
not describe is reported as unknown, not as right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from common import source_pool
from common.errors import AccessRefused, ClusterUnreachable, HangingTransaction, ReoError, Restart
from common.kafka import needed_acls, permissions, topic_fitness
from common.kafka.consumer_group import Group
from common.kafka.needed_acls import OF_STAGE
from common.kafka.route_topics import RouteTopics, load_route_topics
from common.route_states import RouteStates, describe_halted, list_halted
from common.routes import name_some
from common.settings import Settings, destination_kind, user_code
from deduplicator import compiled_path
from deduplicator.own_destination import StoreClient
from reo.checks import clusters, frontier, topics
from reo.checks.api_versions import check_api_versions
from reo.checks.clusters import ClusterDescription
from reo.checks.filter_sql import check_filter_sql
from reo.checks.findings import (
    Finding,
    print_findings,
    report_failure,
    report_ok,
    report_warning,
)
from reo.checks.schemas import check_schemas
from reo.checks.topic_configs import check_topic_settings
from replicator.spark import connector_jars, java

When = Literal["before clusters", "start", "before creating", "never"]
WAITED_FOR = (ClusterUnreachable, HangingTransaction, Restart)
"""Errors that can be over in a moment."""


@dataclass
class Start:
    """A start of these stages, and what its checks have read of the clusters; each is read when the
    first check needs it.
    """

    settings: Settings
    stages: Collection[str] = tuple(OF_STAGE)
    """A stage that runs elsewhere needs nothing here."""
    store: StoreClient | None = None
    """Of `destination.class`, when nothing is wrong with it."""

    @cached_property
    def answering(self) -> Settings:
        """The settings with the furthest candidate that answers as the only source."""
        return source_pool.select_answering(self.settings)

    @cached_property
    def cluster_answers(self) -> list[ClusterDescription | ReoError]:
        """The destination's, then each source's: one that is silent takes `connect_timeout_s`."""
        return clusters.describe_clusters(self.settings)

    @cached_property
    def destination(self) -> ClusterDescription:
        """The destination cluster."""
        answer = self.cluster_answers[0]
        if isinstance(answer, ReoError):
            raise answer
        return answer

    @cached_property
    def topics(self) -> RouteTopics:
        """The topics of both clusters."""
        return load_route_topics(self.answering)


@dataclass(frozen=True, slots=True)
class Check:
    """One check; an error that ends it is reported under its name."""

    name: str
    run: Callable[[Start], Iterable[Finding]]
    stage: str = ""
    """The stage that needs it; empty: each of them."""
    when: When = "before creating"
    """When a start runs it: before it asks a cluster anything, always, only when topics are
    missing (where they exist, a stage finds the same itself, and waits for what can be waited for),
    or never.
    """
    is_needed: bool = False
    """Whether all checks after it, but those that are needed too, are pointless when it fails."""


def run_checks(start: Start, when: When | None = None) -> Iterator[Finding]:
    """The findings of all checks, or of those for this moment of a start."""
    is_access_refused = is_pointless = False
    for check in CHECKS:
        if when not in (None, check.when) or check.stage not in ("", *start.stages):
            continue
        if is_pointless and not check.is_needed:
            return
        try:
            for finding in check.run(start):
                is_pointless |= check.is_needed and finding.level == "error"
                is_access_refused |= isinstance(finding.error, AccessRefused)
                yield finding
        except ReoError as error:
            is_pointless |= check.is_needed
            if is_access_refused and isinstance(error, AccessRefused):
                yield report_warning(
                    check.name,
                    f"cannot be checked: {error}",
                    "grant the missing permissions, then check again",
                )
            else:
                is_access_refused |= isinstance(error, AccessRefused)
                yield report_failure(check.name, error)


def raise_first_error(start: Start, when: When) -> None:
    """Raise the first error of these checks. What can be over in a moment does not refuse a start
    whose clusters have answered: its stages wait.
    """
    for finding in run_checks(start, when):
        if finding.error and not (
            when == "before creating" and isinstance(finding.error, WAITED_FOR)
        ):
            raise finding.error


def _check_settings(start: Start) -> Iterator[Finding]:
    settings = start.settings
    yield report_ok(
        "settings",
        f"application {settings.application}: {', '.join(map(str, settings.rules))},"
        f" mode {settings.source.mode}",
    )
    for line in settings.list_warnings():
        yield report_warning("settings", line, "remove it, or set what the message names")


def _check_user_code(start: Start) -> Iterator[Finding]:
    """Nothing where the settings name none."""
    names = user_code.list_names(start.settings)
    user_code.check_user_code(start.settings)
    if names:
        yield report_ok("own code", f"{', '.join(names)} can be called")


def _check_stage_one(_: Start) -> tuple[()]:
    """SettingsInvalid when this machine lacks Java or the jars."""
    java.find_version()
    connector_jars.list_jars()
    return ()


def _check_store(start: Start) -> Iterator[Finding]:
    """What the class of `destination.class` says of its store, if it can."""
    settings = start.settings
    if not user_code.has_check(settings):
        return
    store = StoreClient(settings, "check", patience_s=settings.connect_timeout_s, read_only=True)
    is_right = True
    for about, seen, to_do, error in store.store.check(list(start.topics.sources)):
        is_right &= error is None
        if error:
            yield report_failure(about, error)
        else:
            yield report_warning(about, seen, to_do) if to_do else report_ok(about, seen)
    start.store = store if is_right else None


def _check_permissions(start: Start) -> Iterator[Finding]:
    settings = start.answering
    permissions.check_permissions(settings, *needed_acls.list_commands(settings, start.stages))
    yield report_ok(
        "permissions",
        "all permissions that both stages need are granted (transactional ids cannot be checked)",
    )


def _check_stage_two(state: RouteTopics) -> Iterator[Finding]:
    """Which of its two implementations runs; the compiled one is faster."""
    reason = compiled_path.find_disabled_reason(state.settings, state.sources)
    yield report_ok(
        "stage two",
        "the compiled path is used" if reason is None else f"Python does all the work: {reason}",
    )


def _check_group_size(start: Start) -> Iterator[Finding]:
    limit = clusters.get_number(
        start.destination.settings or {}, "message.max.bytes", topics.BATCH_BYTES_MAX
    )
    yield from topics.check_group_size(start.topics, limit)


def _check_application(state: RouteTopics) -> Iterator[Finding]:
    """Whether the group's members copy other topics: then another copy has the same application."""
    own = {route.intermediate_topic for route in state.sources}
    assigned = Group(state.settings).list_assigned() or set()
    others = sorted({tp.topic for tp in assigned} - own)
    if others:
        yield report_warning(
            "application",
            f"the members of group {state.settings.application} copy through {name_some(others)},"
            " and this service would not: another copy has the same application",
            "give each copy an application of its own, or stop the other one",
        )


def _check_halted(state: RouteTopics) -> Iterator[Finding]:
    """Routes of which nothing would be copied, because somebody has paused them, or an error has
    stopped them.
    """
    names = {route.intermediate_topic for route in state.sources} & state.existing.keys()
    halted = list_halted(RouteStates(state.settings).read(names), state.sources)
    if halted:
        yield report_ok(
            "halted topics",
            f"{describe_halted(halted)}. To go on: reo resume {' '.join(sorted(halted))}",
        )


def _check_frontier(start: Start) -> Iterator[Finding]:
    """Unknown where a class has the frontiers that does not check them, or has found an error. Of a
    cycle nothing: its records are those of the source.
    """
    settings = start.settings
    if any(topic_fitness.find_cycles(start.topics.sources, start.topics.existing)):
        return
    if destination_kind.is_outside_kafka(settings) and start.store is None:
        yield report_warning(
            "frontier",
            f"cannot be checked: only {settings.destination.class_} knows what it has stored",
            "fix the error above, then check again"
            if user_code.has_check(settings)
            else "the start compares it with the last records of each partition",
        )
    else:
        yield from frontier.check_frontier(
            settings, start.topics, start.store, with_source="replicator" in start.stages
        )


CHECKS = (
    Check("settings", _check_settings),
    Check("own code", _check_user_code, "deduplicator", "before clusters"),
    Check("stage one", _check_stage_one, "replicator", "before clusters"),
    Check("filter.sql", lambda start: check_filter_sql(start.settings), "replicator"),
    Check(
        "destination cluster",
        lambda start: [clusters.report_answer("destination cluster", start.destination)],
        is_needed=True,
    ),
    Check(
        "source cluster",
        lambda start: clusters.check_sources(start.settings, start.cluster_answers[1:]),
        is_needed=True,
    ),
    Check("source brokers", lambda start: check_api_versions(start.answering, "source")),
    Check("destination brokers", lambda start: check_api_versions(start.answering, "destination")),
    Check("permissions", _check_permissions, when="start"),
    Check(
        "destination transactions",
        lambda start: clusters.check_transaction_log(start.settings, start.destination),
    ),
    Check(
        "destination broker settings",
        lambda start: clusters.check_broker_settings(start.settings, start.destination),
    ),
    Check("source topics", lambda start: topics.check_sources(start.topics), "", "start", True),
    Check("destination.class", _check_store, "deduplicator", "start"),
    Check("topics", lambda start: topics.check_topics(start.topics)),
    Check("stage two", lambda start: _check_stage_two(start.topics)),
    Check("group size", _check_group_size, "deduplicator"),
    Check("topic settings", lambda start: check_topic_settings(start.topics)),
    Check("schemas", lambda start: check_schemas(start.topics), when="never"),
    Check("application", lambda start: _check_application(start.topics)),
    Check("halted topics", lambda start: _check_halted(start.topics), when="never"),
    Check("frontier", _check_frontier, "deduplicator"),
)
"""In the order of the output."""


def run_command(settings: Settings, as_json: bool) -> int:
    """The sub-command: exit code 0 without errors, else the code of the first error."""
    return print_findings(list(run_checks(Start(settings))), as_json)
