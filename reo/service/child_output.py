"""The output of the service's processes, which the supervisor forwards: without the lines that
every JVM prints, and with `log.format=json` as JSON events only.

A stage writes one line of JSON for each event. But the JVM prints warnings before its logging
begins, and a crashing library prints plain text; a log collector could not parse such lines. So
with JSON every other line is turned into an event.

When standard error takes nothing (a full disk, a reader that has gone), the output is read all the
same, and lines are lost: a child must not wait for its log, nor end with the exit code 120 that
Python has for output that cannot be written.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from typing import IO

import orjson

from common.logs import LineFormatter

NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"Picked up JAVA_TOOL_OPTIONS:")
"""The beginnings of lines that every start of a JVM prints; they are dropped."""


def convert_line(line: bytes, stage: str, as_json: bool) -> bytes | None:
    """The line to write; None for NOISE. As JSON: an event as it is, any other line as the message
    of a new event, and None for an empty line.
    """
    if line.startswith(NOISE):
        return None
    if not as_json:
        return line.rstrip(b"\n")
    text = line.strip()
    if not text:
        return None
    try:
        if isinstance(orjson.loads(text), dict):
            return text
    except orjson.JSONDecodeError:
        pass
    record = logging.LogRecord(
        __name__, logging.WARNING, "", 0, text.decode(errors="replace"), None, None
    )
    return LineFormatter(stage, as_json=True).format(record).encode()


def forward_output(output: IO[bytes], stage: str, as_json: bool) -> threading.Thread:
    """Forward a child's output to standard error until it ends. The supervisor joins the thread
    when the child has ended, so no line is lost.
    """

    def forward() -> None:
        with output:
            for line in output:
                converted = convert_line(line, stage, as_json)
                if converted is not None:
                    with contextlib.suppress(OSError):
                        sys.stderr.buffer.write(converted + b"\n")
                        sys.stderr.buffer.flush()

    thread = threading.Thread(target=forward, daemon=True, name=f"events of {stage}")
    thread.start()
    return thread
