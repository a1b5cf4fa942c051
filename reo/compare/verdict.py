"""The verdict of `reo verify`: what all comparisons together prove, for people, for programs, and
as an exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from common.errors import CopyDiffers, NotComparable, NothingCompared
from reo.compare.comparison import Comparison
from reo.compare.not_compared import NotCompared


class Verdict(NamedTuple):
    """The result of all comparisons."""

    results: Sequence[Comparison]
    not_comparable: Sequence[NotComparable]
    """Routes that cannot be compared."""
    not_compared: Sequence[NotCompared]
    compared_before: int
    """Records that an earlier comparison found equal (`--resume`)."""
    took_s: float

    @property
    def records(self) -> int:
        """How many records were compared, now and before."""
        return sum(result.equal for result in self.results)

    @property
    def exit_code(self) -> int:
        """A difference comes first, then what cannot be compared, then nothing to compare."""
        if any(result.difference for result in self.results):
            return CopyDiffers.exit_code
        if self.not_comparable:
            return NotComparable.exit_code
        return 0 if self.records else NothingCompared.exit_code

    def __str__(self) -> str:
        """As text for a person."""
        differing = sum(bool(result.difference) for result in self.results)
        verdict = (
            f"{differing} of {len(self.results)} partitions differ"
            if differing
            else (
                "nothing is proved"
                if not self.records
                else "exact in what was compared"
                if self.not_compared
                else "exact"
            )
        )
        before = (
            f" ({self.compared_before} more were compared before)" if self.compared_before else ""
        )
        left_out = (
            f"; {len(self.not_comparable)} routes cannot be compared" if self.not_comparable else ""
        )
        listed = (
            ["not compared:", *(f"    {part}" for part in self.not_compared)]
            if self.not_compared
            else []
        )
        summary = (
            f"{self.records - self.compared_before} records compared in {self.took_s:.1f}"
            f" s{before}: {verdict}{left_out}"
        )
        return "\n".join([*map(str, self.results), *listed, summary])

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        verdict = (
            "differs"
            if self.exit_code == CopyDiffers.exit_code
            else "exact"
            if self.records
            else "nothing compared"
        )
        return {
            "exit_code": self.exit_code,
            "verdict": verdict,
            "records": self.records,
            "compared_before": self.compared_before,
            "seconds": round(self.took_s, 3),
            "partitions": [result.to_dict() for result in self.results],
            "not_compared": [part._asdict() for part in self.not_compared],
            "not_comparable": list(map(str, self.not_comparable)),
        }
