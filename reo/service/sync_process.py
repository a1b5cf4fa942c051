"""The process of the service that keeps alike what is not copied, beside stage two: the offsets of
consumer groups (`offsets.sync_groups`), and the configurations of topics
(`topics.sync_interval_s`). Each is a round that is repeated at its interval.

It is not part of the copy: its errors are logged, and the next round begins anew. Its end never
ends the service, and readiness does not ask for it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from common import clock, source_pool, stage_process
from common.errors import OffsetUntranslatable, ReoError
from common.kafka import client_watch
from common.metrics import HEARTBEAT
from common.settings import Settings
from common.stage_process import Stopping
from reo.migration import config_drift, offsets_sync
from reo.migration.offsets_sync import OffsetsSync

log = logging.getLogger(__name__)
STAGE = "sync"
"""What the supervisor and the metrics call the process."""
POLL_S = 0.2
HEARTBEAT_INTERVAL_S = 1.0


@dataclass(slots=True)
class Rounds:
    """Something that is kept alike. `do` makes a round and returns the text for the log, and
    whether all of it succeeded; the text is logged when it changes.
    """

    what: str
    interval_s: float
    do: Callable[[], tuple[str, bool]]
    next_s: float = 0.0
    """On the monotonic clock."""
    logged: str = ""

    def do_when_due(self) -> None:
        """A round, when the last one began an interval ago."""
        began_s = clock.monotonic()
        if began_s < self.next_s:
            return
        self.next_s = began_s + self.interval_s
        try:
            text, succeeded = self.do()
        except ReoError as error:
            text, succeeded = f"{type(error).__name__}: {error}", False
        if text != self.logged:
            level = logging.INFO if succeeded else logging.WARNING
            log.log(level, "%s: %s", self.what, text)
        self.logged = text


class GroupRounds:
    """Translates what the groups have read since the round before."""

    def __init__(self, settings: Settings, beat: Callable[[], None]) -> None:
        self.settings, self.beat = settings, beat
        self._sync: OffsetsSync | None = None

    def __call__(self) -> tuple[str, bool]:
        """One round; the next one after an error knows nothing of it."""
        sync, self._sync = self._sync, None
        sync = sync or OffsetsSync(
            source_pool.select_answering(self.settings),
            self.settings.offsets.sync_groups,
            self.beat,
        )
        groups = sync.sync()
        self._sync = sync
        errors = dict.fromkeys(
            str(error)
            for group in groups
            for error in group.errors
            if not isinstance(error, OffsetUntranslatable)
        )
        return "; ".join([offsets_sync.summarize(groups), *errors]), not errors


def list_rounds(settings: Settings, beat: Callable[[], None] = lambda: None) -> list[Rounds]:
    """What the settings ask for; the service has this process when there is anything."""

    def sync_configs() -> tuple[str, bool]:
        config_drift.sync_configs(settings)
        return "kept alike", True

    kept_alike = []
    if settings.offsets.sync_groups:
        interval_s = settings.offsets.sync_interval_s
        kept_alike.append(Rounds("consumer groups", interval_s, GroupRounds(settings, beat)))
    if settings.topics.sync_interval_s:
        interval_s = settings.topics.sync_interval_s
        kept_alike.append(Rounds("topic configurations", interval_s, sync_configs))
    return kept_alike


def run(settings: Settings, stopping: Stopping) -> int:
    """Until it is told to stop."""
    heartbeat, last_beat_s = HEARTBEAT.labels(STAGE, "0"), 0.0

    def beat() -> None:
        nonlocal last_beat_s
        if clock.monotonic() > last_beat_s + HEARTBEAT_INTERVAL_S:
            last_beat_s = clock.monotonic()
            heartbeat.set(clock.time())

    kept_alike = list_rounds(settings, beat)
    while not stopping():
        for rounds in kept_alike:
            beat()
            rounds.do_when_due()
        beat()
        clock.sleep(POLL_S)
    return 0


if __name__ == "__main__":
    client_watch.start()
    sys.exit(stage_process.run(STAGE, run))
