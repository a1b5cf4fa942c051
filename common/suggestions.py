"""What was probably meant by a name that does not exist: one wording for settings, topics, commands
and options.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` with the most similar known name; empty when none is similar."""
    nearest = get_close_matches(name, list(known), 1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""
