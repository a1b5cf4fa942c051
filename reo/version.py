"""The version of this reo; pyproject.toml has the same (tests/test_command_line.py)."""

VERSION = "0.1.0"
