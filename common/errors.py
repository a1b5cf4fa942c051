"""Every error with which reo ends on purpose: its class and exit code, by what must happen next.

The text of an error is written where it is raised. `Restart`: a new process repairs it, and the
supervisor starts one, with a backoff. `Stop`: a restart would fail again, so the service ends with
the `exit_code`. docs/reference.md lists all of them.

A message says what happened, names the setting or the record, and says what to do. Foreign
exceptions are translated in `common.kafka.client_errors.translate`; why no broker answers is said
by `common.kafka.cluster_requests`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class ReoError(Exception):
    """Base of all; `exit_code` is what the process ends with.

    `to_do` is what an operator does about it, a sentence without its full stop. One that is given
    ends the message. When `is_explained`, the message names all that can be found out: the
    permissions (`common.kafka.permissions`), or the record (`deduplicator.refused_record`). An
    error of one route alone has its source, intermediate or destination topic as `topic`: with
    `on_stop=route` only that route stops (`common.route_states`).
    """

    exit_code: ClassVar[int] = 1
    default_to_do: ClassVar[str] = "Read the log of the service for the reason, then start it again"
    by_exit_code: ClassVar[dict[int, type[ReoError]]] = {}
    """Every class that declares an exit code."""

    def __init_subclass__(cls) -> None:
        if "exit_code" in vars(cls):
            cls.by_exit_code[cls.exit_code] = cls

    def __init__(
        self, message: str = "", to_do: str = "", is_explained: bool = False, topic: str = ""
    ) -> None:
        message, to_do = map(replace_surrogates, (message, to_do))
        super().__init__(f"{message}. {to_do}" if to_do else message)
        self.message = message
        self.to_do = to_do or self.default_to_do
        self.is_explained = is_explained
        self.topic = topic


class Restart(ReoError):
    """A new process repairs it."""


class Fenced(Restart):
    """A newer member or producer has replaced this one; this process would be a second writer. The
    service ends when that happens again and again: then another one has its name.
    """

    exit_code = 3
    default_to_do = "End one of the two services, or give each its own `instance`"


class StageFailed(Restart):
    """Something unexpected; the message says what."""

    exit_code = 1


class Stop(ReoError):
    """A restart would fail again: an operator must act first."""


class SettingsInvalid(Stop):
    """Lists every invalid setting, not only the first one."""

    exit_code = 2
    default_to_do = "Correct the settings that the message names"


class ClusterUnreachable(Stop):
    """No broker of the named cluster answered in time."""

    exit_code = 10
    default_to_do = "Correct the address, or start the brokers and open the way to them"


class TopicMissing(Stop):
    """The source topic does not exist (or the principal may not describe it)."""

    exit_code = 11
    default_to_do = "Create the topic, or correct its name in the settings"


class AccessRefused(Stop):
    """A cluster refused the credentials or the permission."""

    exit_code = 12
    default_to_do = "Correct the credentials, or grant the permissions that the message names"


class TopicsUnfit(Stop):
    """The existing topics do not allow an exact copy."""

    exit_code = 13
    default_to_do = "Change the topic or the brokers as the message says, or name another topic"


class Cycle(Stop):
    """The copy would read what it writes."""

    exit_code = 14
    default_to_do = "Give the destination topic another name"


class SourceTruncated(Stop):
    """The source no longer has what follows the frontier, or the last copied records."""

    exit_code = 20
    default_to_do = "Bring the records back, or copy to a new destination topic"


class SourceRecreated(Stop):
    """The source topic's identity changed."""

    exit_code = 21
    default_to_do = "Give the new source topic another destination topic"


class FrontierLost(Stop):
    """A partition has no frontier, and nothing else tells how far it is copied."""

    exit_code = 22
    default_to_do = (
        "Run `reo recover`; if nothing was ever copied there, name another destination topic"
    )


class FrontierUnreadable(Stop):
    """The commit metadata of the consumer group was not written by this version of reo."""

    exit_code = 23
    default_to_do = "Run `reo recover`: it finds the frontier from the data"


class ForeignRecord(Stop):
    """A record on the intermediate topic that is no valid envelope of its source partition."""

    exit_code = 24
    default_to_do = (
        "Stop the other writer, then delete the intermediate topic's records up to that one"
        " (kafka-delete-records.sh)"
    )


class ForeignWriter(Stop):
    """A record on the destination topic that stage two did not write."""

    exit_code = 25
    default_to_do = "Stop the other writer, then copy to a new destination topic"


class DestinationTruncated(Stop):
    """The destination lacks records that the frontier counts as written."""

    exit_code = 26
    default_to_do = "Run `reo recover`: it finds from the data what the destination still has"


class RecordRefused(Stop):
    """A record that the destination cannot hold unchanged."""

    exit_code = 27
    default_to_do = (
        "Change the topic or the table so that it can hold the record, or leave the record out with"
        " a filter"
    )


class HangingTransaction(Stop):
    """A transaction over offsets or records of the destination stays open."""

    exit_code = 28
    default_to_do = "Run `reo recover`: it names the command that aborts the transaction"


class ServiceRuns(Stop):
    """The service runs, and `reo recover --apply` needs it stopped."""

    exit_code = 29
    default_to_do = "Stop the service first"


class CopyDiffers(Stop):
    """Source and destination are not the same."""

    exit_code = 30
    default_to_do = "Find out who else writes to the destination, then copy to a new one"


class NotComparable(Stop):
    """A copy with a mapping, a filter, or other sources cannot be compared with its source."""

    exit_code = 31
    default_to_do = "Compare by other means: the copy differs from the source as intended"


class OffsetUntranslatable(Stop):
    """A consumer group's offset has no exact place at the destination (yet, or any more)."""

    exit_code = 32
    default_to_do = "Wait until the copy has reached the offset, then try again"


class GroupBusy(Stop):
    """A consumer group has members; `reo cutover` and `reo offsets translate` need it empty."""

    exit_code = 33
    default_to_do = "Stop the group's consumers first"


class SourceRefused(Stop):
    """Every source candidate was refused, or `source.max_failovers` is used up (failover)."""

    exit_code = 34
    default_to_do = "Repair one of the candidates; the log has the reason for each"


class FilterFailed(Stop):
    """A filter failed at a record, so whether to copy it is unknown."""

    exit_code = 35
    default_to_do = "Correct the filter, or set `filter.on_error=park`"


class LagsBehind(Stop):
    """More lag than `reo lag --max-…` allows; `reo verify` lacks what is not copied yet, or
    `--stop-at-end` would wait for a paused topic.
    """

    exit_code = 36
    default_to_do = "Run `reo status`: it shows which stage waits"


class NothingCompared(Stop):
    """`reo verify` found no record to compare: that proves nothing."""

    exit_code = 37
    default_to_do = "Wait until something is copied, or correct the names of the topics"


class MoveRefused(Stop):
    """A move of topics, ACLs or offsets is not possible as things are, or already made."""

    exit_code = 38
    default_to_do = (
        "Read what the message says of the step, remove the cause, then run the command again"
    )


def replace_surrogates(text: str) -> str:
    r"""With `\ud800` as these six characters: a user's function can raise what is no UTF-8, as a
    command's words and the environment can be, and no file, JSON or metadata takes that.
    """
    return text.encode(errors="backslashreplace").decode()


@contextmanager
def of_topic(topic: str) -> Iterator[None]:
    """A Stop in this block is one of the route with this topic."""
    try:
        yield
    except Stop as stop:
        stop.topic = stop.topic or topic
        raise


def list_stop_codes() -> frozenset[int]:
    """The exit codes after which a restart is useless."""
    return frozenset(code for code, kind in ReoError.by_exit_code.items() if issubclass(kind, Stop))


def find_exit_code_name(code: int) -> str | None:
    """The name of the error with this exit code; None for a signal and for foreign codes."""
    kind = ReoError.by_exit_code.get(code)
    return None if kind is None else kind.__name__
