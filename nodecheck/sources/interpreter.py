"""The renter's own Python: found, and asked by a stand-alone worker that runs inside it."""

from __future__ import annotations

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Channel, Json


class Interpreter:
    """Typed questions to the renter's interpreter."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def chosen(self) -> Maybe[dict[str, Json]]:
        """Which interpreter was taken and why: `path`, `version`, `chosen`, `others` (paths that have torch too)."""
        return self._object("chosen")

    def describe(self) -> Maybe[dict[str, Json]]:
        """What torch in that interpreter says of itself and of the devices it sees (a process of its own)."""
        return self._object("describe")

    def context(self, card: str) -> Maybe[dict[str, Json]]:
        """A context and one tiny kernel on the card with this UUID, or on `cpu`, in a process of its own."""
        return self._object(f"context {card}")

    def _object(self, question: str) -> Maybe[dict[str, Json]]:
        answer = self._channel.ask(question)
        if isinstance(answer, (dict, Absent)):
            return answer
        return Absent(why=Why.failed, detail="an answer of another shape")
