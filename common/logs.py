"""Logging: one event a line on standard error, as text or JSON, with the stage that speaks.

The standard library's logging does all of it; this only says how a line looks. Facts that a machine should find again become fields of the JSON: a
`Place` among the arguments is `topic` and `partition`, named arguments (`log.info("epoch %(epoch)d", {"epoch": 7})`) have their names, and what
is not in the sentence is passed as `extra={"facts": {...}}`, which stands as `name=value` behind the text.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import orjson

from common.routes import Place
from common.settings import Settings


class LineFormatter(logging.Formatter):
    """One record as one line."""

    def __init__(self, stage: str, as_json: bool) -> None:
        super().__init__()
        self.stage = stage
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line; in text, a list or a stack in it is several."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = getattr(record, "facts", {})
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if self.as_json:
            always = {"time": time, "level": record.levelname, "stage": self.stage, "event": message}
            return orjson.dumps({**always, **dict(_named(record.args)), **facts, **always}, default=str).decode()
        tail = "".join(f" {name}={value}" for name, value in facts.items())
        return f"{time} {record.levelname:<7} {self.stage}: {message}{tail}"


def _named(arguments: Any) -> Iterator[tuple[str, object]]:
    """The facts among a record's arguments."""
    if isinstance(arguments, Mapping):
        yield from ((name, _plain(value)) for name, value in arguments.items())
    for value in arguments.values() if isinstance(arguments, Mapping) else arguments or ():
        if isinstance(value, Place):
            yield from (("topic", value.topic), ("partition", value.partition))
        elif isinstance(value, list) and value and all(isinstance(one, Place) for one in value):
            yield "partitions", _plain(value)


def _plain(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Place) else value


def configure_logging(settings: Settings, stage: str) -> None:
    """Send every log record of this process to standard error in the form that the settings ask for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(stage, settings.text("log.format") == "json"))
    handler.addFilter(is_not_of_py4j)
    logging.basicConfig(handlers=[handler], level=settings.text("log.level"), force=True)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record is not py4j's. Whatever it logs of a lost JVM it raises as well, and stage one says it once, as its own error.

    Loggers' levels would not do: PySpark sets them again, and py4j logs a command that failed with the root logger.
    """
    return "py4j" not in PurePath(record.pathname).parts


def report_settings_error(stage: str, error: Exception, exit_code: int) -> None:
    """Say why there are no settings; how a line looks would be one of them, so text is for people, unless the environment says JSON."""
    if os.environ.get("REO_LOG_FORMAT") != "json":
        print(f"{stage}: {error}", file=sys.stderr)
        return
    record = logging.LogRecord(__name__, logging.ERROR, "", 0, "%s: %s", (type(error).__name__, error), None)
    record.facts = {"error": type(error).__name__, "exit_code": exit_code}
    print(LineFormatter(stage, as_json=True).format(record), file=sys.stderr)
