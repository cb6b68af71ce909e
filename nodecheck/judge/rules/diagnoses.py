"""What other tools said of the node."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from nodecheck.facts import Node
from nodecheck.facts.diagnosis import Diagnosis
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import Outcome, fail, passed, rule, skipped, warn
from nodecheck.profile import Profile

_GRAVITY = ("skip", "pass", "unknown", "warn", "fail")


@rule(
    "health.diagnosis",
    "No test of another tool failed",
    reads="the verdicts of DCGM's diagnostic, where its output was handed in",
    door="other_tools",
    passes="every test that ran passed",
    warns="a test failed for a setting, or warned",
    fails="a test failed for another reason",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The vendor's own diagnostic does not let the card pass.",
    next_step="Send its output to the provider together with this report.",
    repeat="dcgmi diag -r 3 -j",
)
def diagnosis(node: Node, _profile: Profile) -> Iterator[Outcome]:
    if not node.diagnoses:
        yield skipped("No output of another tool was handed in.")
        return
    labels = {card.key: card.label for card in node.known_cards}
    for key, some in groupby(sorted(node.diagnoses, key=lambda one: one.card), key=lambda one: one.card):
        subject = Subject(kind="card", key=key, label=labels.get(key, key)) if key else NODE
        yield _judged(list(some), subject)


def _judged(some: list[Diagnosis], subject: Subject) -> Outcome:
    """The gravest test of one card."""
    worst = max(some, key=lambda one: _GRAVITY.index(one.outcome))
    grave = [one for one in some if one.outcome == worst.outcome]
    names = ", ".join(dict.fromkeys(one.test for one in grave))
    said = next((one.detail for one in grave if one.detail), "")
    detail = f"{worst.tool}, {names}: {worst.outcome}{f': {said}' if said else ''}"
    if worst.outcome == "fail":
        return fail(detail, subject=subject, observed=f"{names}: fail")
    if worst.outcome == "warn":
        return warn(detail, subject=subject, observed=f"{names}: warn", cause=Cause.misconfigured)
    if worst.outcome == "pass":
        ran = sum(one.outcome == "pass" for one in some)
        return passed(f"{worst.tool}: {ran} test{'' if ran == 1 else 's'} passed ({names}).", subject=subject)
    return Outcome(Status.unknown, subject, detail=f"{worst.tool}: no test came to a verdict ({names}).")
