"""Workers in the renter's interpreter, one a card, that measure on request; their raw answers can be recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Answer, Channel, Json, Live, Recorded
from nodecheck.sources.crew import Crew, OnProgress, end_all

__all__ = ["OnProgress", "Replayed", "Workers", "end_all", "live"]


class Workers:
    """Typed requests to the workers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def run(self, stage: str, cards: Sequence[str], arguments: Mapping[str, Json]) -> Maybe[dict[str, Json]]:
        """Run `stage` on the workers of `cards` (`Card.key`s, or `cpu0`, `cpu1`, …) and wait for the answer.

        The first stage is `start`, with `python` (the interpreter's path) and `cpus` (card → `0-31`, those of its
        NUMA node); the last is `end`, of no cards. Whoever asks for the same `start` again is told what came of it:
        the workers are there, or could not be had. Any stage may have `deadline_seconds`, `each` (card → arguments of
        its own), `environment` (variables beside the renter's own, and beside `start`'s: a worker that has others is
        started anew), and `log` (what the worker printed meanwhile comes with its answer). A stage whose cards have a
        `rank` is one of a group, and is told `address` and `port`. A card's key may end in `#2`, `#3`, …: further
        workers on the same card.

        The answer: `answers`, card → what the stage says (`rows`, `checks`, …; see `docs/measurements.md`);
        `errors`, card → why there is none: `type` (an exception's, or `died`, `timed_out`, `left_alone`,
        `not_started`), `message`, `step`, `log` (its last lines) and where they apply `signal`, `timed_out`,
        `stacks` (texts), `code`, `trace`; `seconds`; `samples`, card → rows of seconds since the beginning, SM MHz,
        watts, degrees Celsius, event reasons as NVML's bits, PCIe generation and width, None where one is not told.

        The question is `STAGE {…}`, JSON of the cards and arguments by name, so that a recording finds it again. What
        is keyed by card stays in the caller's order: where a recording's UUIDs are replaced, theirs is another.
        """
        asked = {"cards": list(cards), **arguments}
        question = f"{stage} {json.dumps(dict(sorted(asked.items())))}"
        answer = self._channel.ask(question)
        if isinstance(answer, (dict, Absent)):
            return answer
        return Absent(why=Why.failed, detail="an answer of another shape")


class Replayed:
    """Recorded answers; a deadline says how long to wait, not what is asked, and was another in another release."""

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self._recorded = Recorded({_without_deadline(question): kept for question, kept in answers.items()})

    def ask(self, question: str) -> Answer:
        return self._recorded.ask(_without_deadline(question))


def _without_deadline(question: str) -> str:
    stage, _, text = question.partition(" ")
    try:
        asked = json.loads(text)
    except ValueError:
        return question
    if not isinstance(asked, dict):
        return question
    asked.pop("deadline_seconds", None)
    return f"{stage} {json.dumps(asked)}"


def live(on_progress: OnProgress | None = None) -> Live:
    """Workers of this machine; none is started before the first request.

    `end_all` ends them where the user interrupts; whoever is asked on the main thread ends them by itself.
    """
    return Live(Crew(on_progress).answer)
