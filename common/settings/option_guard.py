"""A guard refuses a raw client option on which an exact copy depends, unless its value is harmless
(`common.settings.guarded_options`, `common.settings.spark_options`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """Why an option is guarded. Values that match `harmless` are allowed; with `always`, all others
    are refused even with `allow_unsafe_options`.
    """

    reason: str
    harmless: str = ""
    always: bool = False

    def is_allowed(self, value: str) -> bool:
        """Whether this value is harmless."""
        return (
            bool(self.harmless) and re.fullmatch(self.harmless, value.strip().lower()) is not None
        )
