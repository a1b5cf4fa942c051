"""`make reference`: write every table of the documentation anew."""

from __future__ import annotations

import sys

from reference import pages


def main() -> int:
    """Write what is out of date; returns the exit code."""
    try:
        for page in pages.out_of_date():
            page.write_text(pages.rewritten(page.read_text(), pages.PAGES[page]))
            print(f"written: {page.relative_to(pages.ROOT)}")
    except (OSError, ValueError) as wrong:
        print(f"reference: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
