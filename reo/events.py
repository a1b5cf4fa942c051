"""What the service's processes say, as nothing but events (`log.format=json`).

A stage writes JSON, a line for each event. But the JVM warns before its own logging begins, a crash of a library writes what it likes, and each such line would
be one that a collector of logs cannot read. So with JSON the supervisor reads its children's output, and makes an event of every line that is none.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import IO

import orjson

from common.logs import Line

NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"Picked up JAVA_TOOL_OPTIONS:")
"""What lines begin with that are said at each start of a JVM, and are no news."""


def event(line: bytes, stage: str) -> bytes | None:
    """The line as it is, when it is an event; an event that holds it, when it is not; None when there is nothing to tell."""
    text = line.strip()
    if not text or text.startswith(NOISE):
        return None
    try:
        if isinstance(orjson.loads(text), dict):
            return text
    except orjson.JSONDecodeError:
        pass
    record = logging.LogRecord(__name__, logging.WARNING, "", 0, text.decode(errors="replace"), None, None)
    return Line(stage, as_json=True).format(record).encode()


def follow(output: IO[bytes], stage: str) -> threading.Thread:
    """Pass on to standard error what a child says, until it says no more. The thread is joined when the child has ended, so that its last words are there."""
    def work() -> None:
        with output:
            for line in output:
                told = event(line, stage)
                if told is not None:
                    sys.stderr.buffer.write(told + b"\n")
                    sys.stderr.buffer.flush()

    thread = threading.Thread(target=work, daemon=True, name=f"events of {stage}")
    thread.start()
    return thread
