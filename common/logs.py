"""Logging: one event per line on standard error, as text or JSON, with the name of the stage.

The standard library's logging does the work; this module formats the lines. Values that a log
collector should find become fields of the JSON: a `TopicPartition` among the arguments becomes
`topic` and `partition`, named arguments (`log.info("epoch %(epoch)d", {"epoch": 7})`) keep their
names, and values that are not in the sentence are passed as `extra={"facts": {...}}`; in text they
follow it as `[name=value …]`. The JSON also has OpenTelemetry's resource (`common.otel_resource`).
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, cast

import orjson

from common import otel_resource
from common.errors import replace_surrogates
from common.routes import TopicPartition
from common.settings import Settings


class LineFormatter(logging.Formatter):
    """One record as one line."""

    def __init__(self, stage: str, as_json: bool) -> None:
        super().__init__()
        self.stage = stage
        self.as_json = as_json
        resource = otel_resource.read_attributes(os.environ)
        self.resource = {"resource": resource} if resource else {}

    def format(self, record: logging.LogRecord) -> str:
        """Format the line; in text, a stack trace takes several lines."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = getattr(record, "facts", {})
        message = record.getMessage()
        stack = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        if self.as_json:
            always = {
                "time": time,
                "level": record.levelname,
                "stage": self.stage,
                "event": message + stack,
                **self.resource,
            }
            fields = {**always, **dict(_list_fields(record.args)), **facts, **always}
            return orjson.dumps(_to_json(fields)).decode()
        tail = " ".join(f"{name}={value}" for name, value in facts.items())
        line = f"{time} {record.levelname:<7} {self.stage}: {message}"
        return line + (f" [{tail}]" if tail else "") + stack


def _list_fields(arguments: Any) -> Iterator[tuple[str, object]]:
    """The JSON fields in a record's arguments."""
    if isinstance(arguments, Mapping):
        yield from arguments.items()
    for value in arguments.values() if isinstance(arguments, Mapping) else arguments or ():
        if isinstance(value, TopicPartition):
            yield from (("topic", value.topic), ("partition", value.partition))
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(one, TopicPartition) for one in value)
        ):
            yield "partitions", value


def _to_json(value: object) -> object:
    """A value that JSON can hold: what it cannot is text. A line that cannot be written is lost."""
    if isinstance(value, Mapping):
        return {replace_surrogates(str(name)): _to_json(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return [_to_json(inner) for inner in cast(Iterable[object], value)]
    if value is None:
        return None
    if isinstance(value, float):
        return float(value)  # not a subclass
    if isinstance(value, int) and -(2**63) <= value < 2**64:  # others are no numbers for orjson
        return value
    return replace_surrogates(str(value))


def configure_logging(settings: Settings, stage: str) -> None:
    """Send every log record of this process to standard error, as the settings ask for, in UTF-8,
    whatever the locale: JSON is.
    """
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(stage, settings.log.format == "json"))
    handler.addFilter(is_not_of_py4j)
    logging.basicConfig(handlers=[handler], level=settings.log.level, force=True)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether another module than py4j logged the record. py4j logs a lost JVM and also raises it;
    stage one reports it once, as its own error.

    Levels of loggers do not help: PySpark sets them again, and py4j logs a failed command with the
    root logger.
    """
    return "py4j" not in PurePath(record.pathname).parts


def report_settings_error(stage: str, error: Exception, exit_code: int) -> None:
    """Report invalid settings: as text, unless the environment asks for JSON."""
    if os.environ.get("REO_LOG_FORMAT") != "json":
        print(f"{stage}: {error}", file=sys.stderr)
        return
    record = logging.LogRecord(
        __name__, logging.ERROR, "", 0, "%s: %s", (type(error).__name__, error), None
    )
    record.facts = {"error": type(error).__name__, "exit_code": exit_code}
    print(LineFormatter(stage, as_json=True).format(record), file=sys.stderr)
