"""One client connection through the proxy: two pumps, one for each direction, that pass whole frames on.

Whatever ends one pump ends the connection on both sides, with one exception: a held request outlives its client. The upstream side stays open until the
request was released and the broker has answered it, as if it had been on its way in a slow network all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

from faults.requests import LENGTH, Request, correlation_id, parse
from faults.rule import Rule

Stream = tuple[StreamReader, StreamWriter]
Send = Callable[[StreamWriter, bytes], Awaitable[None]]


class Connection:
    """From a client that was accepted to the broker. `struck` counts a request and says which rule strikes it; `flow` is what both directions wait for."""

    def __init__(self, client: Stream, upstream: Stream, struck: Callable[[Request], Rule | None], flow: Callable[[], Awaitable[object]], send: Send) -> None:
        self.client_reader, self.client = client
        self.upstream_reader, self.upstream = upstream
        self.struck, self.flow, self.send = struck, flow, send
        self.pumps: list[asyncio.Task[None]] = []
        self.owed: dict[int, Rule] = {}
        self.held_ids: set[int] = set()
        self.held_answered = asyncio.Event()
        self.deaf = False
        """The broker gets nothing more."""
        self.mute = False
        """The client gets nothing more."""

    async def run(self) -> None:
        """Pass frames until one side is closed or a rule cuts."""
        self.pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(self.pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in self.pumps:
                pump.cancel()
            self.client.close()
            self.upstream.close()

    def cut(self) -> None:
        """Close both sides, or the client's only when a request is held."""
        if self.held_ids:
            self.mute = True
            self.client.close()
        else:
            for pump in self.pumps:
                pump.cancel()

    async def _requests(self) -> None:
        """Client to broker."""
        while (frame := await self._frame(self.client_reader)) is not None:
            request = parse(frame)
            rule = self.struck(request)
            if rule is not None:
                if rule.action == "cut":
                    return
                self.owed[request.correlation_id] = rule
                self.deaf = self.deaf or rule.action == "drop"
                if rule.action == "hold":
                    self.held_ids.add(request.correlation_id)
                    await rule.gate.wait()
            if not self.deaf:
                await self._pass(self.upstream, frame)
        while self.held_ids:  # the client has gone; what was held for it is still to be done
            self.held_answered.clear()
            await self.held_answered.wait()

    async def _answers(self) -> None:
        """Broker to client."""
        while (frame := await self._frame(self.upstream_reader)) is not None:
            answered = correlation_id(frame)
            rule = self.owed.pop(answered, None)
            if rule is not None:
                rule.answer(frame[LENGTH.size:])
                self.mute = self.mute or rule.action == "swallow_answer"
            if not self.mute:
                await self._pass(self.client, frame)
            self.held_ids.discard(answered)
            self.held_answered.set()

    async def _frame(self, reader: StreamReader) -> bytes | None:
        """The next frame without its length; None when the sender has closed. Neither is noticed while nothing flows."""
        frame = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            frame = await reader.readexactly(LENGTH.unpack(await reader.readexactly(LENGTH.size))[0])
        await self.flow()
        return frame

    async def _pass(self, writer: StreamWriter, frame: bytes) -> None:
        """Send a frame on; a receiver that has gone is noticed by the pump that reads from it."""
        with contextlib.suppress(OSError):
            await self.send(writer, LENGTH.pack(len(frame)) + frame)
