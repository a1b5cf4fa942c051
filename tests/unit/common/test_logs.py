"""A log record is one line, whatever is in it."""

from __future__ import annotations

import logging
import socketserver
import sys
import threading
from typing import Any

import orjson
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from common.logs import LineFormatter, configure_logging
from common.settings import load
from reo.service.child import NOISE, convert_line
from replicator.runs.end_reasons import describe_failure
from tests.harness.log_events import ALWAYS
from tools.demo.broker import free_port


def make_log_record(
    message: str, *arguments: object, facts: dict[str, Any] | None = None, failing: bool = False
) -> logging.LogRecord:
    """A log record as the logging module makes it."""
    info = None
    if failing:
        try:
            raise ValueError("first line\nsecond line")
        except ValueError:
            info = sys.exc_info()
    record = logging.LogRecord("name", logging.WARNING, "file", 1, message, arguments, info)
    if facts is not None:
        record.facts = facts
    return record


@pytest.mark.parametrize(
    "record",
    [
        make_log_record("plain"),
        make_log_record("%s of %d", "ü\n", 2),
        make_log_record("with\nnewlines\r\n"),
        make_log_record("failed", failing=True),
        make_log_record("facts", facts={"text": "a\nb", "object": object()}),
        make_log_record("facts", facts={"of numpy": type("float64", (float,), {})(1.5)}),
        make_log_record("of a user's function: %s", "\ud800"),
        make_log_record("facts", facts={"\udcff": ["\ud800"], "number": 2**64, "set": {1}}),
    ],
)
def test_json_is_one_line_and_parses(record: logging.LogRecord) -> None:
    """Newlines in messages, tracebacks and facts are escaped; what is no JSON becomes its text."""
    line = LineFormatter("stage", as_json=True).format(record)
    assert "\n" not in line
    assert "\r" not in line
    fields = orjson.loads(line)
    assert set(fields) >= ALWAYS
    assert (fields["level"], fields["stage"]) == ("WARNING", "stage")


def test_json_carries_the_facts_as_fields() -> None:
    """What a machine looks for is a field, not a part of the sentence."""
    fields = orjson.loads(
        LineFormatter("stage", as_json=True).format(
            make_log_record("ended", facts={"exit_code": 20, "error": "X"})
        )
    )
    assert (fields["event"], fields["exit_code"], fields["error"]) == ("ended", 20, "X")


def test_text_puts_the_facts_in_brackets() -> None:
    """Apart from the sentence, and before a stack trace."""
    record = make_log_record("ended", facts={"error": "X", "exit_code": 20}, failing=True)
    first, *stack = LineFormatter("stage", as_json=False).format(record).splitlines()
    assert first.endswith(" WARNING stage: ended [error=X exit_code=20]")
    assert stack[0].startswith("Traceback")
    assert (
        LineFormatter("stage", as_json=False).format(make_log_record("ended")).endswith(": ended")
    )


def test_a_lost_jvm_is_not_said_by_py4j(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens where the JVM was: py4j raises that, and its own ERROR lines, one of them by
    the root logger, are not in the log.
    """
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logging(
            load(
                {
                    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
                    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
                    "REO_SOURCE_TOPIC": "t",
                }
            ),
            "replicator",
        )
        # hangs up on whoever connects
        with socketserver.TCPServer(
            ("127.0.0.1", free_port()), socketserver.BaseRequestHandler
        ) as server:
            threading.Thread(
                target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
            ).start()
            gateway = JavaGateway(
                gateway_parameters=GatewayParameters(port=server.server_address[1])
            )
            with pytest.raises(Py4JError):
                gateway.jvm.java.lang.System.nanoTime()
            server.shutdown()
        with pytest.raises(Py4JError):
            gateway.jvm.java.lang.System.nanoTime()
        logging.error("of the root logger, and not py4j's")  # noqa: LOG015
    finally:
        root.handlers[:], root.level = before
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in said] == ["of the root logger, and not py4j's"]


def test_the_traceback_is_in_the_event() -> None:
    """An unexpected error can be found by its text."""
    assert (
        "second line"
        in orjson.loads(
            LineFormatter("stage", as_json=True).format(make_log_record("failed", failing=True))
        )["event"]
    )


def test_text_is_one_line_with_the_facts_behind() -> None:
    """Time in UTC, level, stage, sentence, facts."""
    line = LineFormatter("stage", as_json=False).format(
        make_log_record("ended %d", 3, facts={"exit_code": 20})
    )
    assert line.endswith("WARNING stage: ended 3 [exit_code=20]")
    assert "+00:00" in line
    assert "\n" not in line


def test_a_failed_query_says_what_has_to_be_repaired() -> None:
    """Java wraps a cause in several exceptions that say only that something failed: the line has
    the first and the innermost.
    """

    class Failed(Exception):
        _cause = (
            "Failed to create\n\nJVM stacktrace:\norg.Failed: it\n\tat a.b\nCaused by: org.Login:"
            " no\n\tat c.d\nCaused by: org.Jwt: malformed\n\tat e.f\n"
        )

    assert (
        describe_failure(Failed("Failed to create\n\nJVM stacktrace:\n\tat x.y"))
        == "Failed to create <- org.Jwt: malformed"
    )
    assert describe_failure(ValueError("alone")) == "alone"


def test_what_is_no_event_becomes_one() -> None:
    """A library's text is wrapped, the JVM's standing remarks and empty lines are dropped, an event
    is passed on as it is.
    """

    def to_event(line: bytes) -> bytes | None:
        return convert_line(line, "replicator", as_json=True)

    said = orjson.loads(to_event(b"# A fatal error has \xff been detected\n") or b"")
    assert set(said) >= ALWAYS
    assert (said["level"], said["stage"]) == ("WARNING", "replicator")
    assert said["event"].startswith("# A fatal error has ")
    assert orjson.loads(to_event(b"17\n") or b"")["event"] == "17"
    assert [to_event(line) for line in (*NOISE, b"\n", b"  \n")] == [None] * (len(NOISE) + 2)
    assert to_event(b'{"event":"x"}\n') == b'{"event":"x"}'


def test_in_text_only_the_standing_remarks_are_dropped() -> None:
    """A stack trace keeps its indentation and its empty lines."""
    lines = [b"Traceback:\n", b"  File x\n", b"\n", *NOISE, b"end without a line end"]
    converted = [convert_line(line, "replicator", as_json=False) for line in lines]
    assert converted == [b"Traceback:", b"  File x", b"", None, None, b"end without a line end"]
