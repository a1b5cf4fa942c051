"""One client connection through the proxy: two tasks, one for each direction, forward whole frames.

A queue between the sender and its task holds each frame for its delay. The delays of several frames
overlap, as with a high latency; they do not add up, as with a low bandwidth.

When one task ends, the connection closes on both sides, with one exception: a held request outlives
its client. The upstream side stays open until the request is released and the broker has responded,
as if the request had been delayed by a slow network.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

from tools.faults.proxy_rule import ProxyRule
from tools.faults.requests import LENGTH, Request, parse_correlation_id, parse_request

Stream = tuple[StreamReader, StreamWriter]
DelayQueue = asyncio.Queue[tuple[float, bytes | None]]
"""Frames, each with its arrival time; None when the sender has closed."""
Send = Callable[[StreamWriter, bytes], Awaitable[None]]
IN_FLIGHT = 64
"""Frames that a queue holds; the sender waits while it is full."""


class Connection:
    """A connection from an accepted client to the broker. `match_rule` counts a request and returns
    its rule; both directions wait for `wait_for_flow`.

    `delay_s` is called for each frame, for its delay.
    """

    def __init__(
        self,
        client: Stream,
        upstream: Stream,
        struck: Callable[[Request], ProxyRule | None],
        delay_s: Callable[[], float],
        flow: Callable[[], Awaitable[object]],
        send: Send,
    ) -> None:
        self.client_reader, self.client = client
        self.upstream_reader, self.upstream = upstream
        self.match_rule, self.delay_s, self.wait_for_flow, self.send = struck, delay_s, flow, send
        self.requests: DelayQueue = asyncio.Queue(IN_FLIGHT)
        self.answers: DelayQueue = asyncio.Queue(IN_FLIGHT)
        self.pumps: list[asyncio.Task[None]] = []
        self.rules_by_correlation_id: dict[int, ProxyRule] = {}
        self.held_ids: set[int] = set()
        self.held_answered = asyncio.Event()
        self.drops_requests = False
        """The broker receives nothing more."""
        self.drops_answers = False
        """The client receives nothing more."""

    async def run(self) -> None:
        """Forward frames until one side closes or a rule cuts the connection."""
        readers = [
            asyncio.create_task(self._read(self.client_reader, self.requests)),
            asyncio.create_task(self._read(self.upstream_reader, self.answers)),
        ]
        self.pumps = [
            asyncio.create_task(self._forward_requests()),
            asyncio.create_task(self._forward_answers()),
        ]
        try:
            await asyncio.wait(self.pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*self.pumps, *readers):
                task.cancel()
            self.client.close()
            self.upstream.close()

    def cut(self) -> None:
        """Close both sides; while a request is held, close the client's side only."""
        if self.held_ids:
            self.drops_answers = True
            self.client.close()
        else:
            for pump in self.pumps:
                pump.cancel()

    async def _forward_requests(self) -> None:
        """Client to broker."""
        while (frame := await self._next_frame(self.requests)) is not None:
            request = parse_request(frame)
            rule = self.match_rule(request)
            if rule is not None:
                if rule.action == "cut":
                    return
                self.rules_by_correlation_id[request.correlation_id] = rule
                self.drops_requests = self.drops_requests or rule.action == "drop"
                if rule.action == "hold":
                    self.held_ids.add(request.correlation_id)
                    await rule.gate.wait()
            if not self.drops_requests:
                await self._forward(self.upstream, frame)
        while self.held_ids:  # the client has closed; its held request is still to be sent
            self.held_answered.clear()
            await self.held_answered.wait()

    async def _forward_answers(self) -> None:
        """Broker to client."""
        while (frame := await self._next_frame(self.answers)) is not None:
            answered_id = parse_correlation_id(frame)
            rule = self.rules_by_correlation_id.pop(answered_id, None)
            if rule is not None:
                rule.record_answer(frame[LENGTH.size :])
                self.drops_answers = self.drops_answers or rule.action == "swallow_answer"
            if not self.drops_answers:
                await self._forward(self.client, frame)
            self.held_ids.discard(answered_id)
            self.held_answered.set()

    async def _read(self, reader: StreamReader, line: DelayQueue) -> None:
        """Read whole frames, without their length, from a side into its queue."""
        frame: bytes | None = b""
        while frame is not None:
            frame = None
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                frame = await reader.readexactly(
                    LENGTH.unpack(await reader.readexactly(LENGTH.size))[0]
                )
            await line.put((asyncio.get_running_loop().time() + self.delay_s(), frame))

    async def _next_frame(self, line: DelayQueue) -> bytes | None:
        """The next frame that arrives; None when the sender has closed. Both wait while the
        connection is half-open.
        """
        arrival_s, frame = await line.get()
        if (left_s := arrival_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left_s)
        await self.wait_for_flow()
        return frame

    async def _forward(self, writer: StreamWriter, frame: bytes) -> None:
        """Forward a frame; the task that reads from the receiver notices when the receiver has
        closed.
        """
        with contextlib.suppress(OSError):
            await self.send(writer, LENGTH.pack(len(frame)) + frame)
