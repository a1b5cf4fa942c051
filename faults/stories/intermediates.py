"""The intermediate topic refuses, lacks or has what it should not."""

from __future__ import annotations

STORIES = ()
