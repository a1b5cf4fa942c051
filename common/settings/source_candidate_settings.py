"""Settings of one source candidate: `source.2.sasl_username` is `source.sasl_username` for the
second cluster in `source.bootstrap_servers`. No I/O.
"""

from __future__ import annotations

import re

CANDIDATES_MAX = 9
"""The number of candidates that can have their own settings."""
CANDIDATE_TABLE = re.compile(r"source[.](\d+)")
"""The name of a candidate's table in a settings file."""


def build_candidate_setting_name(number: int, common_name: str) -> str:
    """The name of a `source` setting for one candidate."""
    return f"source.{number}.{common_name.removeprefix('source.')}"
