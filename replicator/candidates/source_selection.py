"""Which cluster the next run copies from.

In single mode there is one source. It must be the topic that the frontiers name, have the last
copied records (`replicator.last_record_check`), and have everything that follows them; otherwise
the service stops.

With failover every candidate is checked before every run, including the one that was copied from
last. It can be copied from when

1. it answers, and has as many partitions as the copy,
2. it still has what follows the frontier, and is at least as far as the copy,
3. it is not behind another candidate by more than `source.offset_lag_threshold`,
4. its topics allow an exact copy (`topic_creation.prepare_topics`: no cycle, sizes, partitions),
5. its records are the copy's records (`replicator.candidates.tail_comparison`).

The candidates are tried in the order of the setting, beginning with the one copied from last; the
first that meets all conditions is selected. A candidate that fails 2, 4 or 5 is logged each time,
and the lag of the others is not measured against it. When all candidates are refused, and none of
them is only silent or behind, the service ends (SourceRefused). Otherwise it waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from common import source_candidates
from common.errors import ClusterUnreachable, ReoError, SourceRefused, SourceTruncated, Stop
from common.metrics import (
    SOURCE_CONNECTIONS,
    SOURCE_REFUSED,
    SOURCE_SWITCHES,
    SOURCE_UNHEALTHY,
)
from common.runtime import Random
from common.settings import Settings
from common.source_candidates import SourceSnapshot, SourceTopics
from replicator.source_checks import (
    Frontiers,
    check_copyable,
    check_offsets,
    inspect_single_source,
    report_stable_ends,
)

log = logging.getLogger(__name__)


class SourceSelection:
    """The candidate that is copied from, how often it changed, and the candidates that the last
    selection refused.

    The `state_file` keeps the first two across restarts of stage one: the new process continues
    with the same candidate, and `source.max_failovers` counts for the whole service.
    """

    def __init__(
        self,
        settings: Settings,
        chance: Random,
        on_progress: Callable[[], None],
        state_file: Path | None = None,
    ) -> None:
        self.settings = settings
        self.on_progress = on_progress
        self.state_file = state_file
        self.initial = (
            chance.randrange(len(settings.sources)) if settings.source.randomize_initial else 0
        )
        self.current: int | None = None
        self.refused: set[int] = set()
        self.failovers = 0
        if state_file and state_file.exists():
            self.current, self.failovers = orjson.loads(state_file.read_bytes())

    def select_source(self, prepared: SourceTopics, frontiers: Frontiers) -> SourceSnapshot | None:
        """The source of the next run, or None when no candidate can be copied from now; a Stop when
        a restart would not help.
        """
        if not self.settings.failover:
            return inspect_single_source(self.settings, prepared, frontiers, self.on_progress)
        results = source_candidates.take_snapshots(self.settings)
        reasons: dict[int, ReoError] = {
            number: result for number, result in enumerate(results) if isinstance(result, ReoError)
        }
        snapshots = {
            number: report_stable_ends(result)
            for number, result in enumerate(results)
            if isinstance(result, SourceSnapshot)
        }
        selected = self._find_usable(snapshots, prepared, frontiers, reasons)
        self.refused = {
            number
            for number, reason in reasons.items()
            if isinstance(reason, Stop) and not isinstance(reason, ClusterUnreachable)
        }
        for number, reason in reasons.items():
            self._report_refusal(number, reason)
        if selected is not None:
            self._switch_to(selected)
            return snapshots[selected]
        SOURCE_UNHEALTHY.inc()
        if len(self.refused) == len(results):
            error = (
                SourceTruncated
                if all(isinstance(reason, SourceTruncated) for reason in reasons.values())
                else SourceRefused
            )
            raise error(
                "every source candidate was refused: "
                + "; ".join(
                    f"{self._name(number)}: {reason}" for number, reason in sorted(reasons.items())
                )
            )
        return None

    def _find_usable(
        self,
        snapshots: dict[int, SourceSnapshot],
        prepared: SourceTopics,
        frontiers: Frontiers,
        reasons: dict[int, ReoError],
    ) -> int | None:
        """The first candidate that passes every check. Candidates that fail move from `snapshots`
        to `reasons`.
        """
        for number in list(snapshots):
            self._is_fit(
                number, snapshots, reasons, lambda snapshot: check_offsets(snapshot, frontiers)
            )
        while True:
            end_sums = {number: snapshot.stable_end_sum for number, snapshot in snapshots.items()}
            first = find_first_within_threshold(
                self._order_candidates(), end_sums, self.settings.source.offset_lag_threshold
            )
            if first is None or self._is_fit(
                first,
                snapshots,
                reasons,
                lambda snapshot: check_copyable(snapshot, prepared, frontiers, self.on_progress),
            ):
                return first

    def _is_fit(
        self,
        number: int,
        snapshots: dict[int, SourceSnapshot],
        reasons: dict[int, ReoError],
        check: Callable[[SourceSnapshot], None],
    ) -> bool:
        try:
            check(snapshots[number])
        except ReoError as reason:
            del snapshots[number]
            reasons[number] = reason
            return False
        return True

    def _order_candidates(self) -> list[int]:
        begin = self.initial if self.current is None else self.current
        return [
            (begin + step) % len(self.settings.sources)
            for step in range(len(self.settings.sources))
        ]

    def _switch_to(self, number: int) -> None:
        """Copy from this candidate from now on; SourceRefused when `source.max_failovers` does not
        allow the change.
        """
        SOURCE_CONNECTIONS.labels(self._name(number)).inc()
        if self.current is not None and number != self.current:
            failovers_max = self.settings.source.max_failovers
            if 0 <= failovers_max <= self.failovers:
                raise SourceRefused(
                    f"{self._name(self.current)} cannot be copied from, and"
                    f" source.max_failovers={failovers_max} does not allow a failover to"
                    f" {self._name(number)}"
                )
            self.failovers += 1
            SOURCE_SWITCHES.labels(self._name(number)).inc()
            log.warning(
                "failover number %d: from %s to %s",
                self.failovers,
                self._name(self.current),
                self._name(number),
            )
        self.current = number
        if self.state_file:
            new_file = self.state_file.with_suffix(".new")
            new_file.write_bytes(orjson.dumps([self.current, self.failovers]))
            new_file.replace(self.state_file)

    def _report_refusal(self, number: int, reason: ReoError) -> None:
        if number in self.refused:
            SOURCE_REFUSED.labels(self._name(number)).inc()
            log.error("source candidate %s is refused: %s", self._name(number), reason)
        else:
            log.warning(
                "source candidate %s cannot be copied from now: %s", self._name(number), reason
            )

    def _name(self, number: int) -> str:
        return self.settings.sources[number].bootstrap_servers


def find_first_within_threshold(
    order: list[int], end_sums: Mapping[int, int], threshold: int
) -> int | None:
    """The first candidate in `order` that is at most `threshold` behind the furthest one; None
    without candidates.
    """
    furthest = max(end_sums.values(), default=0)
    return next(
        (
            number
            for number in order
            if number in end_sums and furthest - end_sums[number] <= threshold
        ),
        None,
    )
