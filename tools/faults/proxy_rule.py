"""One fault: which request it affects, what happens to it, and the proof that it happened.

A rule affects the nth matching request after the rule was added, and `times` requests in all. TCP
loses nothing in the middle of a stream, and the Java client treats a response out of order as an
error; so an action also affects everything that follows on the same connection:

- `hold`            the request, and what the client sends behind it on this connection, waits for
                    `release`. Then it is sent even if the client has closed.
- `drop`            the broker never receives the request, nor anything that follows on this
                    connection.
- `swallow_answer`  the broker handles the request; the client never receives this response, nor a
  later one on this connection.
- `cut`             both sides of the connection are closed before the request is forwarded.

Other connections are not affected: a client recovers by a new connection.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Literal

from tools.faults.requests import Request

Action = Literal["hold", "drop", "swallow_answer", "cut"]
EVERY = 2**31


@dataclass(eq=False)
class ProxyRule:
    """Created by `Proxy.add_rule`; `api` None is any API, `client_id` is a part of the client
    id.
    """

    loop: asyncio.AbstractEventLoop
    action: Action
    api: str | None = None
    client_id: str = ""
    nth: int = 1
    times: int = 1
    matched: int = 0
    hits: int = 0
    matched_event: threading.Event = field(default_factory=threading.Event)
    requests: list[Request] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    """The broker's responses to the matched requests, after the correlation id; also those that the
    client never receives.
    """
    answered: threading.Event = field(default_factory=threading.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, request: Request) -> bool:
        """Whether the rule affects this request. It counts the request, so call it once, and in the
        proxy's thread only.
        """
        if (
            self.api is not None and request.api != self.api
        ) or self.client_id not in request.client_id:
            return False
        self.matched += 1
        if not self.nth <= self.matched < self.nth + self.times:
            return False
        self.hits += 1
        self.requests.append(request)
        self.matched_event.set()
        return True

    def release(self) -> None:
        """Send held requests; later ones are no longer held."""
        self.loop.call_soon_threadsafe(self.gate.set)

    def record_answer(self, body: bytes) -> None:
        """Record the response to a matched request."""
        self.answers.append(body)
        self.answered.set()
