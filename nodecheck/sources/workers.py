"""Workers in the renter's interpreter, one a card, that measure on request; their raw answers can be recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Channel, Json


class Workers:
    """Typed requests to the workers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def run(self, stage: str, cards: Sequence[str], arguments: Mapping[str, Json]) -> Maybe[dict[str, Json]]:
        """Run `stage` on the workers of `cards` (`Card.key`s, or `cpu0`, `cpu1`, …) and wait for the answer.

        The question is `STAGE {"cards": […], …arguments}` as canonical JSON, so that a recording finds it again. The
        answer holds, for each card's key, `rows` and what the stage says besides; see `docs/measurements.md`.
        """
        question = f"{stage} {json.dumps({'cards': list(cards), **arguments}, sort_keys=True)}"
        answer = self._channel.ask(question)
        if isinstance(answer, (dict, Absent)):
            return answer
        return Absent(why=Why.failed, detail="an answer of another shape")
