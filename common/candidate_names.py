"""Settings of a single source candidate: `source.2.sasl_username` is `source.sasl_username` of the second cluster that
`source.bootstrap_servers` names. Pure.
"""

from __future__ import annotations

import re

CANDIDATES_MAX = 9
"""How many candidates may have settings of their own."""
CANDIDATE = re.compile(r"source[.](\d+)")
"""The table of a candidate in a settings file."""


def candidate_name(number: int, common: str) -> str:
    """The candidate's own name of a setting of `source`."""
    return f"source.{number}.{common.removeprefix('source.')}"
