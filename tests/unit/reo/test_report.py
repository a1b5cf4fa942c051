"""What the results of all commands have in common: tables, and the exit code of several errors."""

from __future__ import annotations

import pytest

from common.errors import CopyDiffers, MoveRefused
from reo import report


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Numbers end at the right; what is not known is a dash; nothing ends with spaces."""
    rows = [("orders-0", 7, None), ("a", 1234, "x")]
    assert report.format_table("partition|end|", rows, numbers_from=1).splitlines() == [
        "partition   end",
        "orders-0      7  -",
        "a          1234  x",
    ]
    assert report.format_table("", rows).splitlines() == ["orders-0  7     -", "a         1234  x"]


def test_the_first_error_gives_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """All are printed, on standard error."""
    errors = [MoveRefused("no"), CopyDiffers("other records")]
    assert report.print_errors("cutover", errors) == MoveRefused.exit_code
    assert report.print_errors("cutover", []) == 0
    out, printed = capsys.readouterr()
    assert (out, printed) == ("", "reo cutover: no\nreo cutover: other records\n")


def test_names_that_are_many_are_not_all_printed() -> None:
    """In order, and how many more."""
    assert report.join_names({"b", "a"}) == "a, b"
    assert report.join_names(range(5000)) == "0, 1, 2, 3, 4, 5, 6, 7 and 4992 more"
