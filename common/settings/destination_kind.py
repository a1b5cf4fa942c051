"""Whether records go to topics, or to what a class stores (`destination.class`,
`deduplicator.own_destination`). Everything else stays in the destination cluster: the intermediate
topic, the group, and in its commits a copy of the frontiers, so that the commands read them in one
place. The class is imported only where its store is needed.
"""

from __future__ import annotations

from common.errors import SettingsInvalid
from common.settings.settings import Settings


def is_outside_kafka(settings: Settings) -> bool:
    """Whether records go to a class, and there is no destination topic."""
    return bool(settings.destination.class_)


def refuse_command(settings: Settings, command: str, reason: str) -> None:
    """SettingsInvalid for a command that needs a destination topic."""
    if is_outside_kafka(settings):
        raise SettingsInvalid(f"`{command}` cannot be used with destination.class: {reason}")


def get_zero_timestamp_ms(settings: Settings) -> int | None:
    """The timestamp that replaces timestamp 0; None when the destination cannot store 0 and the
    settings allow no replacement.
    """
    if is_outside_kafka(settings):
        return 0
    return 1 if settings.destination.zero_timestamp == "one" else None
