"""The stories, by what fails; `make faults` runs `ALL`."""

from __future__ import annotations

from tools.faults.run import Story
from tools.faults.stories import (
    brokers,
    candidates,
    executors,
    freezes,
    frontiers,
    groups,
    intermediates,
    kills,
    lost_envelopes,
    mixed,
    network,
    repeated_envelopes,
    sources,
)

GROUPS: dict[str, tuple[Story, ...]] = {
    "processes, killed": kills.STORIES,
    "processes, frozen": freezes.STORIES,
    "Spark executors": executors.STORIES,
    "brokers": brokers.STORIES,
    "source topics": sources.STORIES,
    "source candidates": candidates.STORIES,
    "frontiers": frontiers.STORIES,
    "records and permissions": intermediates.STORIES,
    "intermediate topics, lost": lost_envelopes.STORIES,
    "envelopes, repeated": repeated_envelopes.STORIES,
    "the group's members": groups.STORIES,
    "the network": network.STORIES,
    "everything": mixed.STORIES,
}
"""The stories by what fails."""
ALL: dict[str, Story] = {story.name: story for stories in GROUPS.values() for story in stories}
