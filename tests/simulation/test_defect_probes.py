"""A probe notes the schedules in which a planted defect makes a difference, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.simulator import defect_probes

TEXT = """
WORDS = {"a": 1}

def decide(value, log):
    if value > 3:
        log.append(value)
    result = value + 1 if value else 0
    for one in (value, 2):
        result += one
    return max(result, 5), WORDS["a"]
"""


@pytest.fixture(autouse=True)
def nothing_reached() -> Iterator[None]:
    """The notes are of the process."""
    defect_probes.reached.clear()
    defect_probes.reached_by_import.clear()
    yield
    defect_probes.reached.clear()
    defect_probes.reached_by_import.clear()


def build(right: str, wrong: str) -> Callable[[int, list[int]], Any]:
    """The function with a probe for one defect."""
    assert TEXT.count(right) == 1
    namespace: dict[str, Any] = {}
    defect_probes.execute(TEXT, {"it": TEXT.replace(right, wrong)}, "text", namespace)
    decide: Callable[[int, list[int]], Any] = namespace["decide"]
    return decide


@pytest.mark.parametrize(
    ("right", "wrong", "differs_at"),
    [
        ("value > 3", "value >= 3", {3}),
        ("if value > 3:", "if False:", {4, 5}),
        ("        log.append(value)\n", "        pass\n", {4, 5}),
        ("value + 1 if value else 0", "value + 1", {0}),
        ("(value, 2)", "(value, 4 - value)", {0, 1, 3, 4, 5}),
        ("max(result, 5)", "max(result, 6)", {0, 1}),  # the result is 2 or 5
        ("max(result, 5)", "log.pop()", {0, 1, 2, 3, 4, 5}),  # it is not called
        ("max(result, 5)", "log.set(5)", {0, 1, 2, 3, 4, 5}),
        ("value else 0", "unknown else 0", {0, 1, 2, 3, 4, 5}),
    ],
)
def test_the_values_for_which_a_defect_makes_a_difference(
    right: str, wrong: str, differs_at: set[int]
) -> None:
    """Where both expressions have the same value the defect is not reached; what it would call or
    do instead counts wherever it would.
    """
    plain: dict[str, Any] = {}
    exec(TEXT, plain)
    decide = build(right, wrong)
    reached = set()
    for value in range(6):
        defect_probes.reached.clear()
        log: list[int] = []
        expected_log: list[int] = []
        assert decide(value, log) == plain["decide"](value, expected_log)
        assert log == expected_log
        if defect_probes.reached:
            assert defect_probes.reached == {"it"}
            reached.add(value)
    assert reached == differs_at


@pytest.mark.parametrize(
    ("right", "wrong"), [('{"a": 1}', '{"a": 2}'), ("def decide(value,", "def decide(value: int,")]
)
def test_what_differs_when_a_module_is_imported_differs_always(right: str, wrong: str) -> None:
    """And so does what is neither an expression nor a statement."""
    build(right, wrong)
    assert defect_probes.reached_by_import == {"it"}
