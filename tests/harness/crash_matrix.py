"""The crash matrix: at which named points processes are killed, and in which services."""

from __future__ import annotations

from common import failpoints

Deaths = dict[failpoints.Failpoint, int]
NTH = 3
"""Points of a round are met often, and the third time is in the middle."""
STAGE_TWO: list[Deaths] = [
    {
        "two: started": 1,
        "two: initialised": 1,
        "two: frontier read": 1,
        "two: first frontier made": 1,
        "two: stopping": 1,
    },
    {"two: consumed": NTH, "two: decided": NTH, "two: committed": NTH},
    {"two: begun": NTH, "two: written": NTH, "two: offsets sent": NTH, "two: committing": NTH},
    {"two: partitions gone": 1},
]
"""Deaths of one service, one after the other: at each point when it is met for so manieth time.
"two: committing" strikes a moment later, when "two: committed" may be met already: so these two are
not of one service.
"""
STAGE_TWO_IDS = ["start", "deciding", "writing", "giving up"]

STAGE_ONE: list[Deaths] = [
    {"one: started": 1, "one: ready": 1, "one: run ended": 1},
    {"one: planned": 1, "one: drained": 1},
    {"one: query started": 1},
    {"one: first written": 1},
]
"""A run that was begun may have written everything when it dies, and no other run is needed: so
each of these has one such death, the last.
"""
