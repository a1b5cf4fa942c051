"""The stories, by the component that fails; `make faults` runs `ALL`."""

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

MODULES = (
    kills,
    freezes,
    executors,
    brokers,
    sources,
    candidates,
    frontiers,
    intermediates,
    lost_envelopes,
    repeated_envelopes,
    groups,
    network,
    mixed,
)
ALL: dict[str, Story] = {story.name: story for module in MODULES for story in module.STORIES}
