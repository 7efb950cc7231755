"""Triggers and temporary queues for code that awaits: a part of the client."""

from __future__ import annotations

from datetime import timedelta

from postroad.bus import following
from postroad.bus.async_runner import AsyncRunner
from postroad.bus.message import Message
from postroad.bus.payload import Payload

__all__ = ["AsyncFollowing"]


class AsyncFollowing:
    """Triggers between queues, and queues that exist as long as a session."""

    _runner: AsyncRunner

    async def create_trigger(
        self, source: str, destination: str, selector: str | None = None
    ) -> None:
        """Copy messages posted to one queue that match the selector to another from now on.

        Raises QueueNotFound, InvalidSelector, TriggerExists, TriggerLoop.
        """
        await self._runner.run(following.create_trigger(source, destination, selector))

    async def drop_trigger(self, source: str, destination: str) -> None:
        """Stop copying. Raises QueueNotFound, TriggerNotFound."""
        await self._runner.run(following.drop_trigger(source, destination))

    async def create_temporary_queue(self, payload: Payload = "hstore") -> str:
        """Create a queue that belongs to the session of the caller's connection; return its name.

        Anybody can post to it with `mbus.post`, only this session takes from it, and it is gone
        when the session is. Raises InvalidArgument when the bus has no connection of the caller's.
        """
        call = following.create_temporary_queue(payload)
        name = await self._runner.run_in_session(call)
        self._runner.payloads[name] = payload
        return name

    async def create_temporary_consumer(self, queue: str, selector: str | None = None) -> str:
        """Receive copies of messages posted to a queue from now on; return the copies' queue.

        It is gone with the session of the caller's connection. Only admins of the bus may give a
        selector. Raises QueueNotFound, InvalidSelector, RoleMissing, and InvalidArgument when the
        bus has no connection of the caller's.
        """
        payload = await self._runner.payload(queue)
        call = following.create_temporary_consumer(queue, selector)
        name = await self._runner.run_in_session(call)
        self._runner.payloads[name] = payload
        return name

    async def consume_temporary(
        self,
        name: str,
        amount: int = 1,
        wait: timedelta = timedelta(0),
        payload: Payload | None = None,
    ) -> list[Message]:
        """Take up to `amount` messages of a temporary queue; wait up to `wait` for the first.

        `payload` need be given only for a queue that another bus has made on this connection.
        Raises QueueNotFound, RoleMissing, Unsupported, and InvalidArgument when the bus has no
        connection of the caller's.
        """
        known = payload or self._runner.payloads.get(name, "hstore")
        call = following.consume_temporary(name, known, amount, wait)
        return await self._runner.run_in_session(call)

    async def clear_tempq(self) -> int:
        """Remove the temporary queues of sessions that have ended; maintenance does so too."""
        return await self._runner.run(following.clear_tempq())
