"""What a guarded raw option is: one that an exact copy stands on (`common.client_options`, `common.spark_options`)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """Why an option is not free; `harmless` matches the values that are allowed all the same, `always` ones are refused with the switch too."""

    reason: str
    harmless: str = ""
    always: bool = False

    def allows(self, value: str) -> bool:
        """Whether this value weakens nothing."""
        return bool(self.harmless) and re.fullmatch(self.harmless, value.strip().lower()) is not None
