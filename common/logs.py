"""Logging: one event a line on standard error, as text or JSON, with the stage that speaks.

The standard library's logging does all of it; this only says how a line looks. Facts that a machine should find again are
passed as `extra={"facts": {...}}` and become fields of the JSON or `name=value` behind the text.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from common.settings import Settings


class Line(logging.Formatter):
    """One record as one line."""

    def __init__(self, stage: str, as_json: bool) -> None:
        super().__init__()
        self.stage = stage
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = getattr(record, "facts", {})
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if self.as_json:
            return orjson.dumps({"time": time, "level": record.levelname, "stage": self.stage, "event": message, **facts}, default=str).decode()
        tail = "".join(f" {name}={value}" for name, value in facts.items())
        return f"{time} {record.levelname:<7} {self.stage}: {message}{tail}"


def set_up(settings: Settings, stage: str) -> None:
    """Send every log record of this process to standard error in the form that the settings ask for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line(stage, settings.text("log.format") == "json"))
    logging.basicConfig(handlers=[handler], level=settings.text("log.level"), force=True)
    for noisy in ("py4j", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
