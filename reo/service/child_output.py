"""The output of the service's processes, as JSON events only (`log.format=json`).

A stage writes one line of JSON for each event. But the JVM prints warnings before its logging
begins, and a crashing library prints plain text; a log collector could not parse such lines. So
with JSON the supervisor reads its children's output, and turns every other line into an event.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import IO

import orjson

from common.logs import LineFormatter

NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"Picked up JAVA_TOOL_OPTIONS:")
"""The beginnings of lines that every start of a JVM prints; they are dropped."""


def to_event(line: bytes, stage: str) -> bytes | None:
    """An event as it is, any other line as the message of a new event, and None for an empty line
    and NOISE.
    """
    text = line.strip()
    if not text or text.startswith(NOISE):
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


def forward_output(output: IO[bytes], stage: str) -> threading.Thread:
    """Forward a child's output to standard error until it ends. The supervisor joins the thread
    when the child has ended, so no line is lost.
    """

    def forward() -> None:
        with output:
            for line in output:
                event = to_event(line, stage)
                if event is not None:
                    sys.stderr.buffer.write(event + b"\n")
                    sys.stderr.buffer.flush()

    thread = threading.Thread(target=forward, daemon=True, name=f"events of {stage}")
    thread.start()
    return thread
