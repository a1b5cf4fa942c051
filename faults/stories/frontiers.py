"""The frontier is torn from its records, lost, or set back."""

from __future__ import annotations

STORIES = ()
