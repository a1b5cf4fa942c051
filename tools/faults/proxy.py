"""A TCP proxy in front of one broker that can tell Kafka's requests apart, so that a test can "hold
the next EndTxn".

The kills in `demo` show what a process or a broker leaves behind when it dies. They cannot show
faults of the network: a response that is lost, a request that arrives late, a connection that is
open and carries nothing. The proxy makes these faults, for one request (`faults.proxy_rule`) or for
all (`delay_s`, `bytes_per_s`, `half_open`, `cut_all`), and can prove each of them. It runs on an
event loop in a thread of its own; everything public may be used from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tools.faults.connection import Connection
from tools.faults.proxy_rule import Action, ProxyRule
from tools.faults.requests import API_KEYS, Request

CHUNK_BYTES = 16_384
ANSWER_S = 10
"""Timeout of a call into the thread of the proxy."""


class Proxy:
    """Listens on `port` from the start (it goes into the broker's advertised listeners), and
    forwards to `upstream_port` between `start` and `close`.

    Each request and each response is delayed by `delay_s`, whatever its size; `bytes_per_s`, if not
    0, limits each direction of each connection.
    """

    def __init__(self, upstream_port: int, delay_s: float = 0, bytes_per_s: int = 0) -> None:
        self.upstream_port = upstream_port
        self.delay_s = delay_s
        self.bytes_per_s = bytes_per_s
        self.request_counts: Counter[str] = Counter()
        """Requests that clients sent, by API; with those that a rule matched."""
        self.accepted = 0
        """Connections that clients opened."""
        self.rules: list[ProxyRule] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._flowing, self._closing = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._connections: set[Connection] = set()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)

    @property
    def address(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start to forward."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Close every connection; requests that are still held are never sent."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(ANSWER_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add_rule(
        self,
        action: Action,
        api: str | None = None,
        client_id: str = "",
        nth: int = 1,
        times: int = 1,
    ) -> ProxyRule:
        """From now on, apply `action` to the nth request of this API (None: any API) whose client
        id contains `client_id`, and to `times` requests in all.
        """
        if api is not None and api not in API_KEYS:
            raise ValueError(f"there is no API {api!r}: a rule for it would never match")
        rule = ProxyRule(self._loop, action, api, client_id, nth, times)
        self.rules.append(rule)
        return rule

    @property
    def half_open(self) -> bool:
        """While True, connections stay open and new ones are accepted, but no data passes, not even
        the end of a connection. Afterwards the data is sent.
        """
        return not self._flowing.is_set()

    @half_open.setter
    def half_open(self, closed: bool) -> None:
        self._call_in_loop(self._flowing.clear if closed else self._flowing.set)

    def cut_all(self) -> int:
        """Close all connections; returns how many. The broker's side stays open while a request is
        held.
        """
        cut: list[Connection] = []

        def close() -> None:
            for connection in tuple(self._connections):
                connection.cut()
                cut.append(connection)

        self._call_in_loop(close)
        return len(cut)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(ANSWER_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._on_connection, sock=self._socket)
        await self._closing.wait()
        server.close()

    async def _on_connection(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.accepted += 1
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:  # the broker is down: so is its proxy
            writer.close()
            return
        connection = Connection(
            (reader, writer),
            upstream,
            self._match_rule,
            lambda: self.delay_s,
            self._flowing.wait,
            self._send,
        )
        self._connections.add(connection)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await connection.run()
        finally:
            self._connections.discard(connection)

    def _match_rule(self, request: Request) -> ProxyRule | None:
        """Count a request, and return the first rule that matches it; later rules do not count
        it.
        """
        self.request_counts[request.api] += 1
        return next((rule for rule in tuple(self.rules) if rule.matches(request)), None)

    async def _send(self, writer: StreamWriter, frame: bytes) -> None:
        for begin in range(0, len(frame), CHUNK_BYTES):
            chunk = frame[begin : begin + CHUNK_BYTES]
            if self.bytes_per_s:
                await asyncio.sleep(len(chunk) / self.bytes_per_s)
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
