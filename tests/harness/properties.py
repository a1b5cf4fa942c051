"""Property tests: few examples in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

HAS_ALL_EXAMPLES = os.environ.get("REO_TEST_EXAMPLES") == "all"
SHARE = 10
"""`make test` runs one of so many examples."""


def property_test(examples: int) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a test that Hypothesis calls with examples."""
    count = examples if HAS_ALL_EXAMPLES else max(1, examples // SHARE)

    def decorate(test: Callable[..., Any]) -> Any:
        # how long an example takes says something of the machine only
        as_long_as_it_takes = settings(
            max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
        return pytest.mark.examples(as_long_as_it_takes(test))

    return decorate
