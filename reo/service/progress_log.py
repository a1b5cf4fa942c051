"""What the service's log says of its work: what it copies, when it has caught up, from time to time
how much it has copied and what waits, and with `--stop-at-end` the number of records at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from common import clock
from common.route_states import EXCEPT_HALTED
from common.settings import Settings
from reo.service.health import read_values
from reo.version import VERSION

log = logging.getLogger(__name__)
CHECK_INTERVAL_S, CHECK_SHARE = 1.0, 20
"""How often it is looked whether the service has caught up; less often where that takes more than
this part (1/n) of the time: with 2,000 partitions it takes half a second.
"""
BEHIND_S = 10.0
"""A copy that lags by more than this has to catch up again; under load some records always wait."""


def log_start(settings: Settings) -> None:
    """What is copied, from where to where."""
    topics = [
        str(rule) if rule.destination in ("", rule.source) else f"{rule} as {rule.destination}"
        for rule in settings.rules
    ]
    log.info(
        "reo %(version)s copies %(topics)s from %(source)s to %(destination)s; application"
        " %(application)s, instance %(instance)s",
        {
            "version": VERSION,
            "topics": ", ".join(topics),
            "source": settings.source.bootstrap_servers,
            "destination": settings.destination.bootstrap_servers,
            "application": settings.application,
            "instance": settings.instance,
        },
    )


class ProgressLog:
    """`get_status` returns what /status says."""

    def __init__(
        self,
        settings: Settings,
        stages: Sequence[str],
        registry: CollectorRegistry,
        get_status: Callable[[], dict[str, Any]],
    ) -> None:
        self.interval_s = settings.log.progress_interval_s
        self.registry = registry
        self.get_status = get_status
        # a stage that runs alone tells of its own work
        self.stage, self.done, self.counter, self.lag = (
            ("deduplicator", "copied", "reo_records_out_total", "stage_two")
            if "deduplicator" in stages
            else ("replicator", "read", "reo_records_in_total", "stage_one")
        )
        if len(stages) > 1:
            self.lag = "both"
        self.has_caught_up = False
        self.logged_records = 0
        self.logged_at = clock.monotonic()
        self.check_at = self.logged_at

    def update(self) -> None:
        """Log what there is to say now; called repeatedly."""
        now = clock.monotonic()
        is_due = 0 < self.interval_s <= now - self.logged_at
        if not is_due and (self.has_caught_up or now < self.check_at):
            return
        status = self.get_status()
        self.check_at = now + max(CHECK_INTERVAL_S, CHECK_SHARE * (clock.monotonic() - now))
        lag = status["lag"][self.lag]
        if lag["records"] == 0 and status["ready"] and not self.has_caught_up:
            self.has_caught_up = True
            except_halted = EXCEPT_HALTED if status["halted"] else ""
            self._log("caught up: ", f"nothing waits{except_halted}", lag)
        elif is_due:
            self.has_caught_up = self.has_caught_up and (lag["seconds"] or 0.0) <= BEHIND_S
            self._log("", describe_lag(lag), lag)

    def log_end(self) -> None:
        """With `--stop-at-end`: everything is copied, and no process runs any more."""
        log.info(
            "everything that existed at the start is copied: %(records)d records by this service",
            {"records": self._count_records()},
        )

    def _log(self, event: str, waiting: str, lag: dict[str, Any]) -> None:
        now, records = clock.monotonic(), self._count_records()
        rate = (records - self.logged_records) / max(now - self.logged_at, CHECK_INTERVAL_S)
        self.logged_records, self.logged_at = records, now
        facts = {
            "summary": f"{event}{records} records {self.done} since the start, {rate:.0f} per"
            f" second since the last line; {waiting}",
            "records": records,
            "rate": rate,
            "lag_records": lag["records"],
            "lag_seconds": lag["seconds"],
        }
        log.info("%(summary)s", facts)

    def _count_records(self) -> int:
        """Of all processes of the stage, also of those that have ended."""
        values = read_values(self.registry, (self.counter,), "stage", "topic", "partition")
        return int(sum(value for labels, value in values.items() if labels[1] == self.stage))


def describe_lag(lag: dict[str, Any]) -> str:
    """What waits, in records and seconds."""
    records, seconds = lag["records"], lag["seconds"]
    if records is None:
        return "what waits is not known now"
    if not records:
        return "nothing waits"
    return f"{records} wait" + ("" if seconds is None else f", the first for {seconds:.1f} s")
