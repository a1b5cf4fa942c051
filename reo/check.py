"""`reo check`: everything that can be known before running, and what would be done; it changes nothing.

One question after the other (`reo.checks`), each asked of the clusters as they are now. An answer that makes the next questions pointless, such as a
cluster that is silent or a source topic that is not there, ends it. What may not be seen is said to be unknown, not to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.console import Console

from common import permissions, source_candidates, tables
from common.errors import AccessRefused, ClusterUnreachable, ReoError
from common.permissions import STAGES
from common.settings import Settings
from common.source_clusters import Cluster
from deduplicator import compiled
from reo.checks import clusters, findings, fitness, frontier, topics
from reo.checks.clusters import Seen
from reo.checks.findings import Finding, failed, ok, warning
from reo.checks.topics import Stand

if TYPE_CHECKING:
    from reo.checks.database import Database


class Check:
    """One look at everything; `findings` grows while it goes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.findings: list[Finding] = []

    def run(self) -> None:
        """All questions, in order."""
        self.findings.append(ok("settings", f"application {self.settings.application}: "
                                            f"{', '.join(rule.source for rule in self.settings.rules)}, mode {self.settings.text('source.mode')}"))
        destination = self._answers(self.settings.destination, "destination cluster")
        sources = [self._answers(source, f"source {'candidate ' + source.bootstrap_servers if self.settings.failover else 'cluster'}")
                   for source in self.settings.sources]
        if not any(sources) and len(sources) > 1:
            self.findings.append(failed("source candidates", ClusterUnreachable("none of them answers: check their addresses, and that they can be reached")))
        database = self._database() if tables.named(self.settings) else None
        if destination is None or not any(sources):
            return
        on = source_candidates.select_answering(self.settings)
        for cluster in (on.source, on.destination):
            self._add(f"{cluster.name} brokers", lambda cluster=cluster: clusters.check_abilities(on, cluster))  # type: ignore[misc]
        self._permissions(on)
        self._add("destination transactions", lambda: clusters.check_transactions(on, destination))
        try:
            found = topics.stand(on)
        except ReoError as missing:
            self._refused("source topics", missing)
            return
        self._add("topics", lambda: topics.check(found))
        self._add("stage two", lambda: [_stage_two(on, found)])
        self._add("topic settings", lambda: fitness.check(found))
        if self._tables_are_fit(database, found):
            self._add("frontier", lambda: frontier.check(self.settings, found, database))
        if self.settings.text("filter.sql"):
            self.findings.append(ok("filter.sql", "Spark looks at it when stage one starts: exit code 2 if it cannot be used"))

    def _answers(self, cluster: Cluster, about: str) -> Seen | None:
        try:
            seen = clusters.look(self.settings, cluster)
        except ReoError as silent:
            one_of_many = cluster is not self.settings.destination and len(self.settings.sources) > 1
            self.findings.append(warning(about, str(silent), "the copy goes on from another candidate, if there is one") if one_of_many
                                 else failed(about, silent))
            return None
        self.findings.append(ok(about, f"{cluster.bootstrap_servers} answers: cluster {seen.cluster_id}, {seen.brokers} brokers"))
        return seen

    def _database(self) -> Database | None:
        from reo.checks.database import Database

        try:
            database = Database(self.settings)
            self.findings += database.seen()
        except ReoError as silent:
            self.findings.append(failed("destination database", silent))
            return None
        return database

    def _tables_are_fit(self, database: Database | None, found: topics.Stand) -> bool:
        """Whether there is nothing wrong with them, or there are none; in other ones there is no frontier to be looked for."""
        if not tables.named(self.settings):
            return True
        before = findings.counted(self.findings, "error")
        if database is not None:
            self._add("tables", lambda: database.check(found))
            if findings.counted(self.findings, "error") == before:
                return True
        self.findings.append(warning("frontier", "could not be looked at, it is in the database", "mend the error above, then check again"))
        return False

    def _permissions(self, on: Settings) -> None:
        try:
            permissions.check_permissions(on, *STAGES)
            self.findings.append(ok("permissions", "all that both stages need and that can be asked about is allowed (not: transactional ids)"))
        except ReoError as lacking:
            self.findings.append(failed("permissions", lacking))

    def _add(self, about: str, ask: Callable[[], Iterable[Finding]]) -> None:
        """One kind of question; an error that ends it is its last answer."""
        try:
            for finding in ask():
                self.findings.append(finding)
        except ReoError as refused:
            self._refused(about, refused)

    def _refused(self, about: str, error: ReoError) -> None:
        """Once it was said which permissions are missing, the refusals that follow from it are no errors of their own."""
        known = any(finding.error == AccessRefused.__name__ for finding in self.findings)
        self.findings.append(warning(about, f"could not be looked at: {error}", "grant what is missing, then check again")
                             if known and isinstance(error, AccessRefused) else failed(about, error))


def _stage_two(settings: Settings, found: Stand) -> Finding:
    """Which of its two forms is in use: the same copy, quicker by one of them."""
    reason = compiled.why_not(settings, found.sources)
    return ok("stage two", "its compiled path is used" if reason is None else f"done by Python: {reason}")


def command(settings: Settings, as_json: bool) -> int:
    """The sub-command: exit code 0 without errors, else that of the first one."""
    check = Check(settings)
    try:
        check.run()
    except ReoError as failure:  # a cluster that fell silent meanwhile
        check.findings.append(failed("clusters", failure))
    if as_json:
        print(findings.as_json(check.findings))
    else:
        findings.say(check.findings, Console())
    return findings.exit_code(check.findings)
