"""`reo check`: everything that can be known before a start, and what a start would do; it changes
nothing.

It runs one check after the other (`reo.checks`) against the clusters as they are now. It ends at a
result that makes further checks pointless, such as a cluster that does not answer or a source topic
that does not exist. What the principal may not describe is reported as unknown, not as right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from common import source_candidates
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    HangingTransaction,
    ReoError,
    SettingsInvalid,
    Stop,
)
from common.kafka import needed_acls, permissions
from common.kafka.consumer_group import Group
from common.kafka.needed_acls import OF_STAGE
from common.settings import Settings, destination_kind, user_code
from common.settings.clusters import Cluster
from deduplicator import compiled_path
from reo.checks import (
    api_versions,
    clusters,
    filter_sql,
    findings,
    frontier,
    topic_configs,
    topics,
)
from reo.checks.clusters import ClusterDescription
from reo.checks.findings import Finding, report_failure, report_ok, report_warning
from reo.checks.topics import RouteTopics
from replicator.spark import connector_jars, java

if TYPE_CHECKING:
    from reo.checks.database import Database

WAITED_FOR = (ClusterUnreachable, HangingTransaction)
"""Errors that can be over in a moment: a start waits for their end."""


class Check:
    """Runs all checks; `findings` collects their results."""

    def __init__(self, settings: Settings, stages: Collection[str] = tuple(OF_STAGE)) -> None:
        self.settings = settings
        self.stages = stages  # a stage that runs elsewhere needs nothing here
        self.findings: list[Finding] = []

    def run(self) -> None:
        """Run all checks in order."""
        self.findings.append(
            report_ok(
                "settings",
                f"application {self.settings.application}:"
                f" {', '.join(rule.source for rule in self.settings.rules)}, mode"
                f" {self.settings.source.mode}",
            )
        )
        self.findings += [
            report_warning("settings", line, "remove it, or set what the message names")
            for line in self.settings.list_warnings()
        ]
        if "deduplicator" in self.stages:
            self._add_findings("own code", self._check_user_code)
        if "replicator" in self.stages:
            self._add_findings("stage one", check_stage_one)
            self._add_findings("filter.sql", lambda: filter_sql.check_filter_sql(self.settings))
        destination = self._check_cluster(self.settings.destination_cluster, "destination cluster")
        sources = self._check_sources()
        database = (
            self._connect_database() if destination_kind.is_postgresql(self.settings) else None
        )
        if destination is None or not any(sources):
            return
        settings = source_candidates.select_answering(self.settings)
        for cluster in (settings.source_cluster, settings.destination_cluster):
            self._add_findings(
                f"{cluster.name} brokers",
                lambda cluster=cluster: api_versions.check_api_versions(settings, cluster),  # type: ignore[misc]
            )
        self._check_permissions(settings)
        self._add_findings(
            "destination transactions", lambda: clusters.check_transactions(settings, destination)
        )
        try:
            state = topics.load_route_topics(settings)
        except ReoError as error:
            self._add_error("source topics", error)
            return
        self._add_findings("topics", lambda: topics.check_topics(state))
        self._add_findings("stage two", lambda: [_describe_stage_two(settings, state)])
        self._add_findings("topic settings", lambda: topic_configs.check_topic_settings(state))
        self._add_findings("application", lambda: _check_application(state))
        if "deduplicator" in self.stages and self._check_tables(database, state):
            self._add_findings(
                "frontier",
                lambda: frontier.check_frontier(
                    self.settings, state, database, with_source="replicator" in self.stages
                ),
            )

    def _check_sources(self) -> list[ClusterDescription | None]:
        """The candidates; None for each that does not answer."""
        sources = [
            self._check_cluster(
                source,
                f"source candidate {source.bootstrap_servers}"
                if self.settings.failover
                else "source cluster",
            )
            for source in self.settings.sources
        ]
        if not any(sources) and len(sources) > 1:
            self.findings.append(
                report_failure(
                    "source candidates",
                    ClusterUnreachable(
                        "none of them answers: check their addresses, and that they can be reached"
                    ),
                )
            )
        return sources

    def _check_cluster(self, cluster: Cluster, about: str) -> ClusterDescription | None:
        try:
            description = clusters.describe_cluster(self.settings, cluster)
        except ReoError as error:
            is_one_of_many = (
                cluster is not self.settings.destination_cluster and len(self.settings.sources) > 1
            )
            self.findings.append(
                report_warning(
                    about, str(error), "the copy goes on from another candidate, if there is one"
                )
                if is_one_of_many
                else report_failure(about, error)
            )
            return None
        self.findings.append(
            report_ok(
                about,
                f"{cluster.bootstrap_servers} answers: cluster {description.cluster_id},"
                f" {description.brokers} broker{'' if description.brokers == 1 else 's'}",
            )
        )
        return description

    def _connect_database(self) -> Database | None:
        from reo.checks.database import Database

        try:
            database = Database(self.settings)
            self.findings += database.check_server()
        except ReoError as error:
            self.findings.append(report_failure("destination database", error))
            return None
        return database

    def _check_user_code(self) -> Iterator[Finding]:
        """Nothing where the settings name none."""
        names = user_code.list_names(self.settings)
        user_code.check_user_code(self.settings)
        if names:
            yield report_ok("own code", f"{', '.join(names)} can be called")

    def _check_tables(self, database: Database | None, state: topics.RouteTopics) -> bool:
        """Whether the frontiers can be checked: the tables have no error, or the copies are not
        tables.
        """
        if not destination_kind.is_outside_kafka(self.settings):
            return True
        if not destination_kind.is_postgresql(self.settings):
            self.findings.append(
                report_warning(
                    "frontier",
                    f"cannot be checked: it is in what {self.settings.destination.class_} stores",
                    "the start compares it with the last records of each partition",
                )
            )
            return False
        errors_before = findings.count_level(self.findings, "error")
        if database is not None:
            self._add_findings("tables", lambda: database.check_tables(state))
            if findings.count_level(self.findings, "error") == errors_before:
                return True
        self.findings.append(
            report_warning(
                "frontier",
                "cannot be checked, it is in the database",
                "fix the error above, then check again",
            )
        )
        return False

    def _check_permissions(self, settings: Settings) -> None:
        try:
            permissions.check_permissions(
                settings, *needed_acls.list_commands(settings, self.stages)
            )
            self.findings.append(
                report_ok(
                    "permissions",
                    "all permissions that both stages need are granted (transactional ids cannot be"
                    " checked)",
                )
            )
        except ReoError as error:
            self.findings.append(report_failure("permissions", error))

    def _add_findings(self, about: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Run one check; an error that ends it becomes its last finding."""
        try:
            for finding in check():
                self.findings.append(finding)
        except ReoError as error:
            self._add_error(about, error)

    def _add_error(self, about: str, error: ReoError) -> None:
        """An error; but only a warning when it follows from missing permissions that are already
        reported.
        """
        is_reported = any(isinstance(finding.error, AccessRefused) for finding in self.findings)
        self.findings.append(
            report_warning(
                about,
                f"cannot be checked: {error}",
                "grant the missing permissions, then check again",
            )
            if is_reported and isinstance(error, AccessRefused)
            else report_failure(about, error)
        )


def check_before_creating(settings: Settings, stages: Collection[str]) -> None:
    """What a start does that would create a topic: all checks, so that a start that is refused
    creates nothing. The first error is raised, except those for which a start waits.
    """
    check = Check(settings, stages)
    check.run()
    for finding in check.findings:
        if isinstance(finding.error, Stop) and not isinstance(finding.error, WAITED_FOR):
            raise finding.error


def check_stage_one() -> list[Finding]:
    """An error when this machine lacks Java or the jars, without which `reo run` ends."""
    try:
        java.find_version()
        connector_jars.list_jars()
    except SettingsInvalid as reason:
        return [report_failure("stage one", reason)]
    return []


def _check_application(state: RouteTopics) -> Iterator[Finding]:
    """Whether the group's members copy other topics: then another copy has the same application."""
    own = {route.intermediate_topic for route in state.sources}
    assigned = Group(state.settings).list_assigned() or set()
    others = sorted({tp.topic for tp in assigned} - own)
    if others:
        yield report_warning(
            "application",
            f"the members of group {state.settings.application} copy through {', '.join(others)},"
            " and this service would not: another copy has the same application",
            "give each copy an application of its own, or stop the other one",
        )


def _describe_stage_two(settings: Settings, state: RouteTopics) -> Finding:
    """Which of its two implementations runs; the compiled one is faster."""
    reason = compiled_path.find_disabled_reason(settings, state.sources)
    return report_ok(
        "stage two",
        "the compiled path is used" if reason is None else f"Python does all the work: {reason}",
    )


def run_command(settings: Settings, as_json: bool) -> int:
    """The sub-command: exit code 0 without errors, else the code of the first error."""
    check = Check(settings)
    try:
        check.run()
    except ReoError as error:  # a cluster has stopped answering meanwhile
        check.findings.append(report_failure("clusters", error))
    if as_json:
        print(findings.format_json(check.findings))
    else:
        findings.print_findings(check.findings, Console())
    return findings.get_exit_code(check.findings)
