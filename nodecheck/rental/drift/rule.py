"""A rule of drift: what has changed of a node since it was accepted, or since the last look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodecheck.facts import Absent, Card, Maybe, Node, known
from nodecheck.judge import Cause, Described, Owner, Status, Subject
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import (
    Observation,
    Outcome,
    as_scalar,
    observe,
    of_card,
    passed,
    skipped,
    unknown,
)
from nodecheck.profile import Profile
from nodecheck.report.text import plural, shown

NOTHING_BEFORE = "There is neither an accepted report nor a look before this one."

GRAVITY = (Status.skipped, Status.passed, Status.unknown, Status.warn, Status.fail)
"""In rising order."""


@dataclass(frozen=True)
class Drift:
    """What a rule is shown: the same node at up to three times, and what was rented."""

    baseline: Node | None
    """As it was accepted."""
    before: Node | None
    """At the last look."""
    now: Node
    profile: Profile

    @property
    def reference(self) -> Node | None:
        """What the state of the node is held against: the accepted one, else the last look."""
        return self.baseline or self.before

    def witness(self, then: Node) -> str:
        """Where an expectation comes from, with its date."""
        what = "the accepted report" if then is self.baseline else "the last look"
        return f"{what}, {then.taken_at:%Y-%m-%d %H:%M} UTC"


Compare = Callable[[Drift], Iterable[Outcome]]


@dataclass(frozen=True, kw_only=True)
class DriftRule(Described):
    """A check of a node against what it was."""

    compare: Compare
    fleeting: bool = False
    """Its warnings tell of what happened between two looks: that the next one finds nothing is no news."""


REGISTRY: dict[str, DriftRule] = {}


def drift_rule(
    id: str,
    title: str,
    *,
    reads: str,
    door: str,
    passes: str,
    warns: str = "",
    fails: str = "",
    cause: Cause,
    owner: Owner,
    required: bool = False,
    meaning: str,
    next_step: str,
    repeat: str,
    fleeting: bool = False,
) -> Callable[[Compare], Compare]:
    """Register the decorated function as a rule; its id begins with `drift.`."""

    def register(compare: Compare) -> Compare:
        if id in REGISTRY:
            raise ValueError(f"two rules have the id {id}")
        REGISTRY[id] = DriftRule(
            id=id,
            title=title,
            reads=reads,
            door=door,
            passes=passes,
            warns=warns,
            fails=fails,
            cause=cause,
            owner=owner,
            required=required,
            meaning=meaning,
            next_step=next_step,
            repeat=repeat,
            compare=compare,
            fleeting=fleeting,
        )
        return compare

    return register


# Which card is which


def place(card: Card) -> Maybe[str]:
    """Where the card sits: its PCI address, and its partition where a package is split into several cards."""
    if isinstance(card.pci_address, Absent) or isinstance(card.partition, Absent) or not card.partition:
        return card.pci_address
    return f"{card.pci_address}/{card.partition}"


def same(card: Card, among: Iterable[Card]) -> Card | None:
    """The card of the other time that this one is: by its UUID, or by its place where one of the two tells none."""
    here = place(card)
    for other in among:
        if known(card.uuid) and known(other.uuid):
            if card.uuid == other.uuid:
                return other
        elif known(here) and here == place(other):
            return other
    return None


def pairs(then: Node, now: Node) -> Iterator[tuple[Card, Card]]:
    """Every card that is there at both times and answers now, as it was and as it is."""
    for card in now.known_cards:
        before = same(card, then.known_cards) if card.usable is True else None
        if before is not None:
            yield before, card


def no_cards(drift: Drift, then: Node) -> Outcome | None:
    """Why the cards of the two times cannot be compared; None where they can."""
    if isinstance(then.cards, Absent) or not then.cards:
        return skipped(f"No cards were seen in {drift.witness(then)}.")
    if isinstance(drift.now.cards, Absent):
        return unknown(NODE, drift.now.cards)
    return None


# What has changed of one fact


@dataclass(frozen=True)
class Changed:
    """A fact that is not what it was."""

    was: Any
    now: Any
    drift: Drift


Say = Callable[[Changed], Outcome | None]
"""What a change means; None where it is none to speak of."""


def card_drift(
    id: str, title: str, *, path: str, unit: str = "", door: str = "nvml", **words: Any
) -> Callable[[Say], Say]:
    """Register the decorated function as a rule on the fact at `path` of every card.

    It is asked of each card on which the fact is not what it was, and its outcome is completed with the card, both
    values and their sources.
    """

    def register(say: Say) -> Say:
        def compare(drift: Drift) -> Iterator[Outcome]:
            then = drift.reference
            if then is None:
                yield skipped(NOTHING_BEFORE)
            elif why := no_cards(drift, then):
                yield why
            else:
                looks = [
                    (of_card(card), observe(before, path, before.source), observe(card, path, card.source))
                    for before, card in pairs(then, drift.now)
                ]
                yield from compared(looks, drift, then, say, unit, "card")

        drift_rule(id, title, door=door, **words)(compare)
        return say

    return register


def node_drift(
    id: str,
    title: str,
    *,
    path: str,
    unit: str = "",
    door: str = "host",
    source: str = "linux",
    needless: Callable[[Drift], str] | None = None,
    **words: Any,
) -> Callable[[Say], Say]:
    """The same for one fact of the node, at `path` of `Node`; skipped where `needless` says why."""

    def register(say: Say) -> Say:
        def compare(drift: Drift) -> Iterator[Outcome]:
            then = drift.reference
            if then is None:
                yield skipped(NOTHING_BEFORE)
            elif needless and (why := needless(drift)):
                yield skipped(why)
            else:
                look = (NODE, observe(then, path, source), observe(drift.now, path, source))
                yield from compared([look], drift, then, say, unit, "")

        drift_rule(id, title, door=door, **words)(compare)
        return say

    return register


def compared(
    looks: Iterable[tuple[Subject, Observation, Observation]],
    drift: Drift,
    then: Node,
    say: Say,
    unit: str,
    noun: str,
) -> Iterator[Outcome]:
    """What `say` says of every value that is not what it was; one pass where nothing is to be said."""
    alike: list[Any] = []
    silent = True
    for subject, was, now in looks:
        if isinstance(was.value, Absent):
            continue
        words: dict[str, Any] = {
            "expected": as_scalar(was.value),
            "expected_from": drift.witness(then),
            "unit": unit,
            "observed_from": now.source,
        }
        if isinstance(now.value, Absent):
            silent = False
            yield unknown(subject, now.value, **words)
            continue
        outcome = None if now.value == was.value else say(Changed(was.value, now.value, drift))
        if outcome is None:
            alike.append(now.value)
            continue
        silent = False
        words["observed"] = as_scalar(now.value)
        kept = {key: word for key, word in words.items() if getattr(outcome, key) in (None, "")}
        yield replace(outcome, subject=subject, **kept)
    if silent and alike:
        told = {words_for(value, unit) for value in alike}
        value = f" ({told.pop()})" if len(told) == 1 else ""
        where = f"{plural(len(alike), noun)}: as" if noun else "As"
        yield passed(f"{where} it was{value}.", expected_from=drift.witness(then))
    elif silent:
        yield skipped(f"It was not seen in {drift.witness(then)}.")


def words_for(value: Any, unit: str = "") -> str:
    """A value as people read it; a setting is on or off."""
    return ("on" if value else "off") if isinstance(value, bool) else shown(value, unit)
