"""One test of a rule that every module has to keep: as many tests as there are modules would take
longer to collect and report than to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.kafka import ROOT


def format_path(path: Path) -> str:
    """The path below the repository's folder."""
    return str(path.relative_to(ROOT))


def check_each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Decorates a check of one module; the test runs it for all, and reports each that fails."""

    def make_test(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert paths
            failures = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as failed:
                    failures.append(f"{format_path(path)}: {failed}")
            assert failures == [], "\n".join(failures)

        test.__doc__ = check.__doc__
        return test

    return make_test
