"""A rule: what is asked of a node, why, and what its answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import Absent, Card, Fact, Node, origin
from nodecheck.judge.finding import NODE, Cause, Owner, Scalar, Status, Subject
from nodecheck.profile import Profile


@dataclass(frozen=True)
class Outcome:
    """What a rule says of one subject. Texts left empty are filled from the rule."""

    status: Status
    subject: Subject = NODE
    detail: str = ""
    observed: Scalar | None = None
    expected: Scalar | None = None
    unit: str = ""
    observed_from: str = ""
    expected_from: str = ""
    cause: Cause | None = None
    """Instead of the rule's own cause, where one rule can find two kinds of trouble."""
    owner: Owner | None = None
    next_step: str = ""
    door: str = ""


Judge = Callable[[Node, Profile], Iterable[Outcome]]


@dataclass(frozen=True)
class Rule:
    """One check, documented where it is written; `docs/findings.md` is generated from these fields."""

    id: str
    """Stable and dotted: `topology.nvlink.active_links`."""
    title: str
    reads: str
    """What it looks at, in words."""
    door: str
    """The way to see the node that it looks through (`Door.name`)."""
    passes: str
    """When it passes."""
    warns: str
    """When it warns; empty if it never does."""
    fails: str
    """When it fails; empty if it never does."""
    cause: Cause
    owner: Owner
    required: bool
    """Whether an unknown holds up the verdict; a profile may say otherwise."""
    meaning: str
    """What a warn or fail means for the renter."""
    next_step: str
    repeat: str
    """A command, run on the node, that shows it again."""
    judge: Judge


REGISTRY: dict[str, Rule] = {}


def rule(
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
) -> Callable[[Judge], Judge]:
    """Register the decorated function as a rule."""

    def register(judge: Judge) -> Judge:
        if id in REGISTRY:
            raise ValueError(f"two rules have the id {id}")
        REGISTRY[id] = Rule(
            id, title, reads, door, passes, warns, fails, cause, owner, required, meaning, next_step, repeat, judge
        )
        return judge

    return register


def of_card(card: Card) -> Subject:
    return Subject(kind="card", key=card.key, label=card.label)


@dataclass(frozen=True)
class Observation:
    """A value with its witness."""

    value: Any
    source: str


def observe(root: Fact, path: str, source: str) -> Observation:
    """The fact at the dotted `path` below `root`, and where `source` read it.

    An `Absent` on the way there is the value. Raises AttributeError for a path that the model does not have.
    """
    here: Any = root
    witness = source
    for name in path.split("."):
        if isinstance(here, Absent):
            break
        field = type(here).model_fields.get(name)
        if field is not None:
            witness = origin(field, source)
        here = getattr(here, name)
    return Observation(here, witness)


def unknown(subject: Subject, absent: Absent, **known: Any) -> Outcome:
    """The outcome for a value that could not be seen."""
    return Outcome(Status.unknown, subject, detail=f"Not seen: {absent}.", **known)


def skipped(reason: str, subject: Subject = NODE) -> Outcome:
    """The outcome for a question that does not arise here."""
    return Outcome(Status.skipped, subject, detail=reason)


def each_card(
    node: Node, path: str, verdict: Callable[[Card, Any], Outcome | tuple[Status, str]], **texts: Any
) -> Iterator[Outcome]:
    """One outcome for each card from the fact at `path`; an absent fact is unknown without asking `verdict`.

    `verdict(card, value)` returns the status and a sentence, or a whole `Outcome` of its own.
    `texts` (`expected`, `expected_from`, `unit`, …) stand in every outcome.
    """
    for card in node.known_cards:
        seen = observe(card, path, card.source)
        if isinstance(seen.value, Absent):
            yield unknown(of_card(card), seen.value, observed_from=seen.source, **texts)
            continue
        answer = verdict(card, seen.value)
        if isinstance(answer, Outcome):
            yield answer
            continue
        status, detail = answer
        shown = seen.value if isinstance(seen.value, (str, int, float, bool)) else str(seen.value)
        yield Outcome(
            status, of_card(card), detail=detail, observed=shown, observed_from=seen.source, **texts
        )
