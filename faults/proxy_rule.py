"""One fault: which request it strikes, what is done to it, and the proof that it happened.

A rule strikes the nth matching request since it was made, and as many after it as `times` says. TCP loses nothing in the middle of a stream, and the Java
client treats an answer out of order as a defect; so what is withheld takes what follows it on the same connection along:

- `hold`            the request, and what the client sends behind it on this connection, waits for `release`. It is sent then even if the client has gone.
- `drop`            the broker never sees the request, nor anything that follows on this connection.
- `swallow_answer`  the broker does what is asked; the client never sees this answer, nor a later one on this connection.
- `cut`             both sides of the connection are closed before the request is forwarded.

Other connections are not touched: a client gets over it by connecting again.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Literal

from faults.requests import Request

Action = Literal["hold", "drop", "swallow_answer", "cut"]
EVERY = 2**31


@dataclass(eq=False)
class ProxyRule:
    """Made by `Proxy.rule`; `api` None is any, `client_id` is a part of the client's id."""

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
    """What the broker answered to the struck requests, from behind the correlation id; also when the client never sees it."""
    answered: threading.Event = field(default_factory=threading.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, request: Request) -> bool:
        """Whether this request is struck; it is counted, so ask once. Called in the proxy's thread only."""
        if (self.api is not None and request.api != self.api) or self.client_id not in request.client_id:
            return False
        self.matched += 1
        if not self.nth <= self.matched < self.nth + self.times:
            return False
        self.hits += 1
        self.requests.append(request)
        self.matched_event.set()
        return True

    def release(self) -> None:
        """Let held requests go, those of the past and of the future."""
        self.loop.call_soon_threadsafe(self.gate.set)

    def record_answer(self, body: bytes) -> None:
        """The broker has answered a struck request."""
        self.answers.append(body)
        self.answered.set()
