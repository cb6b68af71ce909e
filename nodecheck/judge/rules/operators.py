"""Do the operators that training uses give the right numbers, forward and backward?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from nodecheck.facts.measurements import Check, StageRun
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import Outcome, fail, passed, skipped
from nodecheck.judge.rules.measurements import Look, first_line, load_rule

OPERATORS = "operators."
_TOLD = 3
"""Operators of which a sentence tells the error."""

Wrong = dict[tuple[str, str], Check]
"""By operator and type."""


@load_rule(
    "measurements.operators",
    "Operators of training give the right numbers",
    reads="attention in each of its back ends, normalisation, products, convolution, embedding, gather, scatter, casts "
    "to eight bits and their like, forward and backward on every card, beside the same in float64 on the CPU "
    "(docs/measurements.md gives the tolerances); at level full also a block through torch.compile",
    passes="every element is within the tolerance; what this torch or card does not have stands in the stage's detail. "
    "Skipped where the stage was not part of the run",
    fails="one is not, raises an error, or ends the process. Wrong on one card and right on its siblings is that "
    "card's fault; wrong on all, or where there is one card, is the software's until shown otherwise",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Your programs get wrong numbers or errors from this PyTorch on these cards: losses that do not fall, or "
    "crashes in the middle of a run.",
    next_step="Run it again with the image or the PyTorch that the cards' maker tests; if it stays, send this report "
    "to the provider.",
    repeat="nodecheck measure operators",
)
def operators(look: Look) -> Iterator[Outcome]:
    by_card = _checks(look)
    shared = _wrong_everywhere(by_card)
    if shared:
        several = len(by_card) > 1
        where = "every card" if several else look.subject(next(iter(by_card))).label
        yield _fail(NODE, f"on {where if look.node.known_cards else 'the CPU'}", shared)
    for cards, checks in by_card.items():
        subject = look.subject(cards)
        own = {key: check for key, check in checks.items() if check.wrong and key not in shared}
        if own:
            yield _fail(
                subject,
                f"on {subject.label}, and right on other cards",
                own,
                cause=Cause.faulty,
                owner=Owner.provider,
                next_step="Send this report to the provider, and ask for another card.",
            )
        elif not shared:
            yield _sound(subject, checks)
    for run in look.measured.stages:
        if run.stage == "operators":
            yield from _not_done(look, run)
    if not by_card and not any(run.stage == "operators" for run in look.measured.stages):
        yield skipped("The stage was not part of this run.")


def _checks(look: Look) -> dict[tuple[str, ...], Wrong]:
    found: dict[tuple[str, ...], Wrong] = defaultdict(dict)
    for check in look.measured.checks:
        if check.check.startswith(OPERATORS):
            found[check.cards][check.check.removeprefix(OPERATORS), check.at.dtype or ""] = check
    return found


def _wrong_everywhere(by_card: Mapping[tuple[str, ...], Wrong]) -> Wrong:
    """What is wrong on every card that tried it, and on more than one where there are more."""
    tried: dict[tuple[str, str], list[Check]] = defaultdict(list)
    for checks in by_card.values():
        for key, check in checks.items():
            tried[key].append(check)
    least = min(len(by_card), 2)
    return {
        key: same[0]
        for key, same in tried.items()
        if len(same) >= least and all(check.wrong for check in same)
    }


def _fail(subject: Subject, where: str, wrong: Wrong, **words: Any) -> Outcome:
    told = "; ".join(
        f"{_named(key)}{f' ({check.examples[0]})' if check.examples else ''}"
        for key, check in list(wrong.items())[:_TOLD]
    )
    more = f" and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
    return fail(
        f"Wrong {where}: {told}{more}.",
        subject=subject,
        observed=len(wrong),
        expected=0,
        unit="operators wrong",
        **words,
    )


def _named(key: tuple[str, str]) -> str:
    name, dtype = key
    return f"{name} in {dtype}" if dtype else name


def _sound(subject: Subject, checks: Wrong) -> Outcome:
    empty = [key for key, check in checks.items() if not check.compared]
    words: dict[str, Any] = {"observed": 0, "expected": 0, "unit": "operators wrong"}
    if empty:
        return Outcome(Status.unknown, subject, detail=f"{_named(empty[0])}: nothing was compared.", **words)
    names = {name for name, _ in checks}
    types = sorted({dtype for _, dtype in checks if dtype})
    return passed(f"{len(names)} operators, all right ({', '.join(types)}).", subject=subject, **words)


def _not_done(look: Look, run: StageRun) -> Iterator[Outcome]:
    """An operator that ended its process is as wrong as one that raised; what only did not run is not."""
    if run.status == "done":
        return
    subject = look.subject(run.cards, "all" if len(run.cards) > 2 else "")
    reason = first_line(run.detail) or run.status
    if run.status == "skipped":
        yield skipped(f"Not run: {reason}.", subject)
    elif "ended by SIG" in reason:
        yield fail(f"An operator ended its process: {reason}.", subject=subject, observed="ended the process")
    else:
        yield Outcome(Status.unknown, subject, detail=f"Not checked: {reason}.")
