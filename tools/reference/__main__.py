"""`make reference`: rewrite every table of the documentation."""

from __future__ import annotations

import sys

from tools.reference import pages


def main() -> int:
    """Write the outdated pages and files; returns the exit code."""
    try:
        for path, text in pages.find_outdated().items():
            path.write_text(text)
            print(f"written: {path.relative_to(pages.ROOT)}")
    except (OSError, ValueError) as error:
        print(f"reference: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
