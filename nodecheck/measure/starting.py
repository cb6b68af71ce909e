"""The workers' start, which is asked for twice: as soon as the cards are known, and again by who measures.

Importing torch and making contexts is most of what starting costs, and the stack's facts want both of every card as
well: so the workers start while the node is still being looked at, and what they say of their cards is the context
test (`nodecheck/probes/stack.py`). Who asks for the same start again is told the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodecheck.facts import Absent, Card
from nodecheck.measure.targets import Target, idle
from nodecheck.sources.channel import Json
from nodecheck.sources.workers import Workers

DEADLINE_SECONDS = 120.0
"""From a network disk the import has been seen to take a minute."""


def request(python: str, loaded: Iterable[Target], environment: Mapping[str, str]) -> dict[str, Json]:
    """The arguments of stage `start`."""
    return {
        "python": python,
        "cpus": {target.key: target.cpus for target in loaded},
        "environment": dict(environment),
        "deadline_seconds": DEADLINE_SECONDS,
    }


def start(workers: Workers, python: str, cards: Iterable[Card], *, force: bool) -> Mapping[str, Json]:
    """Start workers on those of `cards` that may be loaded; what each answered, by the card's key.

    A card that is not among the answers has no worker. `force` loads cards that somebody else uses.
    """
    loaded = idle(cards, force=force)
    if not loaded:
        return {}
    said = workers.run("start", tuple(target.key for target in loaded), request(python, loaded, {}))
    answers = None if isinstance(said, Absent) else said.get("answers")
    return answers if isinstance(answers, dict) else {}
