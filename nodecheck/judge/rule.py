"""A rule: what is asked of a node, why, and what its answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodecheck.facts import Absent, Card, Fact, Gathered, Node, Why, origin
from nodecheck.facts.base import AMD_ALONE, NVIDIA_ALONE
from nodecheck.facts.card import Vendor
from nodecheck.judge.finding import NODE, Cause, Owner, Scalar, Status, Subject
from nodecheck.profile import CardSpec, Profile


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
    why: Why | None = None
    """Of an unknown: why the value is absent."""


Judge = Callable[[Node, Profile], Iterable[Outcome]]


@dataclass(frozen=True, kw_only=True)
class OnAmd:
    """What a check says otherwise where the profile's cards are AMD's; what is empty is said alike."""

    title: str = ""
    reads: str = ""
    door: str = ""
    meaning: str = ""
    next_step: str = ""
    repeat: str = ""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A check as it is documented where it is written; the pages of findings are generated from these fields."""

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
    vital: bool = False
    """Whether an unknown holds up the verdict all the same where the answer was an error or nonsense, came too
    late or was never asked for; what the device does not have, or may not tell, does not."""
    on_amd: OnAmd | None = None

    def on(self, vendor: Vendor | None) -> Described:
        """The check as it is said of this vendor's cards."""
        if vendor != "amd" or self.on_amd is None:
            return self
        return replace(self, **{key: text for key, text in vars(self.on_amd).items() if text})

    def holds_up(self, outcome: Outcome) -> bool:
        """Whether this outcome, if it is unknown, holds up the verdict; a profile may say otherwise."""
        return self.required or (self.vital and outcome.why not in _TOLD_AS_ABSENT)


@dataclass(frozen=True, kw_only=True)
class Rule(Described):
    """A check of a node against a profile."""

    judge: Judge
    under_load: bool = False
    """Whether it is asked only of runs that put load on the node, that is, never at level quick."""


_TOLD_AS_ABSENT = (Why.not_supported, Why.no_permission, Why.not_present)


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
    under_load: bool = False,
    vital: bool = False,
    on_amd: OnAmd | None = None,
) -> Callable[[Judge], Judge]:
    """Register the decorated function as a rule."""

    def register(judge: Judge) -> Judge:
        if id in REGISTRY:
            raise ValueError(f"two rules have the id {id}")
        REGISTRY[id] = Rule(
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
            judge=judge,
            under_load=under_load,
            vital=vital,
            on_amd=on_amd,
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
    names = path.split(".")
    for depth, name in enumerate(names):
        if isinstance(here, Absent):
            break
        if isinstance(here, Gathered):
            source = here.source_of(".".join(names[depth:]), source)
        field = type(here).model_fields.get(name)
        if field is not None:
            witness = origin(field, source)
        here = getattr(here, name)
    return Observation(here, witness)


def passed(detail: str, **words: Any) -> Outcome:
    """The outcome for an answer that is as it should be; `words` are further fields of the outcome."""
    return Outcome(Status.passed, detail=detail, **words)


def warn(detail: str, **words: Any) -> Outcome:
    """The outcome for an answer that the renter should know of before going on."""
    return Outcome(Status.warn, detail=detail, **words)


def fail(detail: str, **words: Any) -> Outcome:
    """The outcome for an answer that the bundle must not have."""
    return Outcome(Status.fail, detail=detail, **words)


def unknown(subject: Subject, absent: Absent, **known: Any) -> Outcome:
    """The outcome for a value that could not be seen."""
    detail = f"Not seen: {str(absent).rstrip('.')}."
    return Outcome(Status.unknown, subject, detail=detail, why=absent.why, **known)


def skipped(reason: str, subject: Subject = NODE) -> Outcome:
    """The outcome for a question that does not arise here."""
    return Outcome(Status.skipped, subject, detail=reason)


@dataclass(frozen=True)
class Look:
    """What a rule on a card is shown."""

    value: Any
    """The fact at the rule's path; the card where the rule has no path."""
    expected: Any
    """What the profile says, None where the rule expects nothing of it."""
    card: Card
    spec: CardSpec
    profile: Profile
    node: Node


_OTHERS_ALONE: dict[Vendor, str] = {
    "amd": "Asked of NVIDIA's cards alone.",
    "nvidia": "Asked of AMD's cards alone.",
}

_AMD_DOORS = {"sysfs": "kfd", "amd_smi": "amd_smi", "amdsmi": "amdsmi", "rocm_smi": "amd_smi"}
"""The door that a source of AMD's looks through."""


def card_rule(
    id: str,
    title: str,
    *,
    path: str = "",
    expects: str = "",
    as_fact: Callable[[Any], Any] = lambda value: value,
    applies: Callable[[CardSpec], bool] | None = None,
    unit: str = "",
    not_supported: str = "",
    instead: Callable[[Card, CardSpec], str] | None = None,
    of: Vendor | None = None,
    reads: str = "",
    door: str = "nvml",
    **words: Any,
) -> Callable[[Callable[[Look], Outcome]], Callable[[Look], Outcome]]:
    """Register the decorated function as a rule on the fact at `path` of every card.

    `expects` is the key of the profile's card that the fact is held against, `as_fact` what turns its value
    into the fact's unit. The function's outcome is completed with the card, the observed value and its source,
    the expected value and the key's witness. An absent fact is `unknown` without asking the function; one that is
    `not_supported` is skipped instead where `not_supported` says why that is no loss, and so is one that only the
    other vendor's cards have, or for which `instead` says what else tells it. The rule is skipped where the profile
    has no card or another vendor's than `of`, where it does not say `expects`, and where it does not apply to the
    product. A rule without `path` is shown the card and sees to absent facts itself.
    """

    def register(look: Callable[[Look], Outcome]) -> Callable[[Look], Outcome]:
        def of_one(card: Card, node: Node, profile: Profile, spec: CardSpec) -> Outcome:
            if card.vendor != spec.vendor:
                return skipped("A card of another vendor than the profile's; see cards.vendor.")
            if of not in (None, spec.vendor):
                return skipped(_OTHERS_ALONE[spec.vendor])
            if applies and not applies(spec):
                return skipped(f"The question does not arise for the cards of {profile.name}.")
            stated = getattr(spec, expects) if expects else None
            if expects and stated is None:
                return skipped(f"The profile {profile.name} does not say.")
            seen = observe(card, path, card.source) if path else Observation(card, "")
            known: dict[str, Any] = {"unit": unit, "observed_from": seen.source}
            if card.vendor == "amd" and door == "nvml":
                known["door"] = _AMD_DOORS.get(card.source_of(path, card.source), "kfd")
            expected = None
            if stated is not None:
                expected = as_fact(stated)
                known |= {"expected": as_scalar(expected), "expected_from": spec.stated_by(expects).witness}
            if isinstance(seen.value, Absent):
                if seen.value in (AMD_ALONE, NVIDIA_ALONE):
                    return skipped(_OTHERS_ALONE[spec.vendor])
                if not_supported and seen.value.why is Why.not_supported:
                    return skipped(not_supported)
                if instead and (reason := instead(card, spec)):
                    return skipped(reason)
                return unknown(NODE, seen.value, **known)
            outcome = look(Look(seen.value, expected, card, spec, profile, node))
            if path:
                known["observed"] = as_scalar(seen.value)
            if outcome.expected is not None:
                known.pop("expected_from", None)
            # What the function says itself goes before what is filled in.
            return replace(outcome, **{k: v for k, v in known.items() if getattr(outcome, k) in (None, "")})

        def judge(node: Node, profile: Profile) -> Iterator[Outcome]:
            if profile.card is None:
                yield skipped(f"The profile {profile.name} has no cards.")
            elif isinstance(node.cards, Absent):
                yield unknown(NODE, node.cards)
            elif not node.cards:
                yield skipped("There is no card to look at; see cards.listed.")
            else:
                said = [(card, of_one(card, node, profile, profile.card)) for card in node.cards]
                if needless := _needless(outcome for _, outcome in said):
                    yield skipped(needless)
                    return
                for card, outcome in said:
                    yield replace(outcome, subject=of_card(card))

        rule(id, title, reads=reads or _reads(path), door=door, **words)(judge)
        return look

    return register


def _needless(outcomes: Iterable[Outcome]) -> str:
    """Why no card was asked, where that is said of each in the same words: then it is said once."""
    said = {(outcome.status, outcome.detail) for outcome in outcomes}
    status, detail = said.pop()
    return detail if status is Status.skipped and not said else ""


def smi(*fields: str) -> str:
    """The nvidia-smi command that shows these fields of every card."""
    return f"nvidia-smi --query-gpu=index,pci.bus_id,{','.join(fields)} --format=csv"


def amd_smi(command: str, *options: str) -> str:
    """The amd-smi command that shows this of every card: `amd-smi metric --power`."""
    return " ".join(("amd-smi", command, *(f"--{option}" for option in options)))


def as_scalar(value: Any) -> Scalar | None:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)


def _reads(path: str) -> str:
    """The description and the sources of the field at `path` of a card, for the page of findings."""
    model: Any = Card
    description, table = "", dict[str, str]()
    for name in path.split("."):
        field = model.model_fields[name]
        extra = field.json_schema_extra
        description = field.description or ""
        table = extra.get("read_from", {}) if isinstance(extra, dict) else {}
        model = field.annotation
    return f"{description} ({'; '.join(table.values())})"
