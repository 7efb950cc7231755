"""What the handlers of one transaction return to those who asked, sent together. Pure."""

from __future__ import annotations

from postroad.bus import payload as payloads
from postroad.bus import request
from postroad.bus.call import Call
from postroad.bus.message import Message
from postroad.bus.payload import Payload

__all__ = ["Answers"]


class Answers:
    """Gathers the answers of a batch."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self.asked: list[Message] = []
        self._answers: list[object] = []

    def add(self, message: Message, answer: object) -> None:
        """Keep an answer that somebody waits for. Raises WrongPayload, as its message's failure."""
        if answer is None or not request.asks(message):
            return
        payloads.parameter(self._payload, answer)
        self.asked.append(message)
        self._answers.append(answer)

    def call(self) -> Call[list[str | None]]:
        """Build the call that sends them."""
        return request.reply_many(self.asked, self._payload, self._answers)
