"""The compiled path's scan beside Python's rule, without a client: batches made of bytes, and the
comparison of the two decisions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from common import origin as origins
from common.frontier import RuleState
from common.origin import Origin
from deduplicator import compiled_library
from deduplicator.compiled_batch import CompiledBatch, FetchedMessages
from deduplicator.rule import decide
from fuzz.messages import IDENTITY


class MadeMessages(FetchedMessages):
    """A batch that no client has taken: origins at consecutive offsets of one partition."""

    def __init__(self, values: Sequence[bytes], partition: int = 0) -> None:
        super().__init__(compiled_library.load_library())
        self.kept = [ctypes.create_string_buffer(value, max(1, len(value))) for value in values]
        self.raw.count = len(values)
        for position, value in enumerate(values):
            self.raw.origins[position] = ctypes.addressof(self.kept[position])
            self.raw.origin_sizes[position] = len(value)
            self.raw.offsets[position], self.raw.partitions[position], self.raw.plain[position] = (
                position,
                partition,
                1,
            )

    def release(self) -> None:
        """There are no messages."""


def assert_as_python(state: RuleState, values: Sequence[bytes]) -> bool:
    """The scan decides as `rule.decide` does, or leaves all of it to Python, and only for a reason;
    returns whether it decided.
    """
    decided = CompiledBatch(MadeMessages(values), 0, len(values)).scan(state, IDENTITY)
    try:
        parsed: list[Origin] | None = [origins.parse(value) for value in values]
    except ValueError:
        parsed = None
    if parsed is None or any(
        found.source_partition != 0 or found.timestamp_ms <= 0 for found in parsed
    ):
        assert decided is None, (
            "what is no origin of this partition, or has no timestamp that can be written as it is,"
            " is Python's"
        )
        return False
    expected = decide(state, parsed)
    if any(parsed[position].source_identity != IDENTITY for position in expected.accepted):
        assert decided is None, "another topic's record would be written"
        return False
    assert decided is not None, "nothing is unusual here"
    found_positions = [decided.records.positions[number] for number in range(len(decided.records))]
    assert (decided.state, found_positions) == (expected.state, expected.accepted)
    assert (decided.duplicates, decided.stale, decided.holes) == (
        expected.duplicates,
        expected.stale,
        expected.holes,
    )
    assert list(decided.records.source_offsets) == [
        parsed[position].source_offset for position in expected.accepted
    ]
    return True
