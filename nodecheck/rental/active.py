"""`check --active`: short measurements on a node where nobody works, beside those that it was accepted with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodecheck.facts import Absent, Card, Measurements, Node
from nodecheck.facts.card import BUSY_BYTES, BUSY_PERCENT
from nodecheck.facts.measurements import MOST_TRIES, Figure, StageName
from nodecheck.judge import Cause, Described, Finding, Owner, Status, Subject, find
from nodecheck.judge.figures import LEAST_COPY_BYTES, Limits, spread
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, fail, of_card, passed, skipped, unknown, warn
from nodecheck.profile import NO_PROFILE
from nodecheck.rental.state import figure_name
from nodecheck.report.document import Report
from nodecheck.report.text import number, unit_words

STAGES: tuple[StageName, ...] = ("hbm", "gemm", "host", "pairs", "collectives")
BUDGET_SECONDS = 45.0
"""What does not fit is left out in the order of `measure.plan.DROPS`; eight H200 fit but for groups of few cards."""
SAMPLES, APART_SECONDS = 3, 1.5
"""How often each card has to be found idle, and how far apart."""
WARN_BEHIND, FAIL_BEHIND = 0.05, 0.10
"""Shares by which a figure may be behind the one that was accepted. Five runs of one H200 lie within 2 % of each other
(2026-11-30), and within 0.4 % but for copies from the host."""
LATENCY_BEHIND = 0.50
"""From which share on latencies, and copies so small that latency is what they measure, warn; they never fail. Launches
of one H200 took 7.0 to 10.6 us in six processes (2026-11-30)."""
LESS_IS_BETTER = ("us", "s")
"""Units of times."""


def watch(node: Node, look: Callable[[], Node]) -> str:
    """`occupied` of this look and of those that follow; it takes as long as these, and ends with the first sign."""
    looks = [node]
    while not (why := occupied(looks)) and len(looks) < SAMPLES:
        time.sleep(APART_SECONDS)
        looks.append(look())
    return why


def interpreter(accepted: Report) -> Path | None:
    """The one that the accepted figures were measured with, if it is still there."""
    stack = accepted.facts.stack
    if isinstance(stack, Absent) or isinstance(stack.interpreter, Absent):
        return None
    path = stack.interpreter.path
    return Path(path) if os.access(path, os.X_OK) else None


def occupied(looks: Sequence[Node]) -> str:
    """Why nothing is to be measured: what was seen in `looks` that speaks against every card's being idle all along.
    Empty where nothing does."""
    for node in looks:
        if isinstance(node.cards, Absent):
            return f"the cards could not be seen ({node.cards})"
        if not node.cards:
            return "the node has no card"
        for card in node.cards:
            for why in _signs(card):
                return f"{card.label}: {why}"
    return ""


def _signs(card: Card) -> Iterator[str]:
    """Of work on the card. What cannot be seen might be work."""
    if card.usable is not True:
        yield "the driver does not hand it out"
    if isinstance(card.processes, Absent):
        yield f"whether a program is on it was not seen ({card.processes})"
    elif computing := [process for process in card.processes if process.kind != "graphics"]:
        yield f"process {computing[0].pid} is on it"
    used = card.memory.used_bytes
    if isinstance(used, Absent):
        yield f"its memory in use was not seen ({used})"
    elif used > BUSY_BYTES:
        yield f"{used / 1024**2:,.0f} MiB of its memory are in use"
    busy = card.gpu_utilization_percent
    if isinstance(busy, Absent):
        yield f"how busy it is was not seen ({busy})"
    elif busy >= BUSY_PERCENT:
        yield f"it is {busy} % busy"


def _described(stage: str, title: str, repeat: str) -> Described:
    return Described(
        id=f"drift.measured.{stage}",
        title=title,
        reads="the figure of the same measure, size, type and cards in the accepted report, and the one measured now",
        door="torch",
        passes=f"each is at most {WARN_BEHIND:.0%} behind the one that was accepted; {LATENCY_BEHIND:.0%} for "
        f"latencies and what moves less than {LEAST_COPY_BYTES // 1024**2} MiB",
        warns="one is further behind",
        fails=f"one is more than {FAIL_BEHIND:.0%} behind, latencies and small copies left aside",
        cause=Cause.slow,
        owner=Owner.provider,
        required=True,
        meaning="The node has become slower than it was when it was accepted.",
        next_step="Look at the findings on clocks, links and heat for the reason. Where there is none, send both "
        "reports to the provider.",
        repeat=repeat,
    )


RULES: dict[str, Described] = {
    stage: _described(stage, title, f"nodecheck measure {stage}")
    for stage, title in (
        ("hbm", "The cards' memory is as fast as when accepted"),
        ("gemm", "The cards compute as fast as when accepted"),
        ("host", "Copies between host and cards are as fast as when accepted"),
        ("pairs", "Copies between cards are as fast as when accepted"),
        ("collectives", "Collectives are as fast as when accepted"),
    )
}

DATA = Described(
    id="drift.measured.data",
    title="What was measured with came back right",
    reads="every byte or element that the measurements compare",
    door="torch",
    passes="all of them are right",
    fails="one is wrong",
    warns="",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="The node computes or carries wrong data without an error.",
    next_step="Keep your work off these cards, and send this to the provider.",
    repeat="nodecheck measure pairs collectives",
)


def findings(node: Node, accepted: Report | None) -> tuple[Finding, ...]:
    """What the measurements of `node` say beside the accepted ones."""
    asked: list[tuple[Described, Callable[[], Iterable[Outcome]]]] = [
        *((rule, partial(_stage, stage, node, accepted)) for stage, rule in RULES.items()),
        (DATA, partial(_data, node)),
    ]
    return tuple(find(asked, NO_PROFILE, {}))


def doubtful(node: Node, accepted: Report | None) -> tuple[Figure, ...]:
    """The figures that would warn or fail although the limit lies within their spread: measure them again."""
    return tuple(
        pair.now
        for pair in _pairs(node.measurements, accepted)
        if len(pair.now.tries) < MOST_TRIES
        and pair.limits.status(pair.behind) is not Status.passed
        and any(
            abs(pair.behind - limit) <= pair.spread for limit in (pair.limits.warn, pair.limits.fail) if limit
        )
    )


@dataclass(frozen=True)
class _Pair:
    """A figure as it was accepted, and as it is."""

    was: Figure
    now: Figure

    @property
    def behind(self) -> float:
        """The share by which it is worse; negative where it is better."""
        change = self.now.median / self.was.median - 1
        return change if self.now.unit in LESS_IS_BETTER else -change

    @property
    def limits(self) -> Limits:
        """In shares behind."""
        size = self.now.at.size_bytes
        if self.now.unit in LESS_IS_BETTER or (size is not None and size < LEAST_COPY_BYTES):
            return Limits(LATENCY_BEHIND, None, more_is_better=False)
        return Limits(WARN_BEHIND, FAIL_BEHIND, more_is_better=False)

    @property
    def spread(self) -> float:
        """How far another reading of the two may lie, as a share."""
        return max(spread(self.was) / self.was.median, spread(self.now) / self.now.median)


def _pairs(measured: Measurements | Absent, accepted: Report | None) -> tuple[_Pair, ...]:
    before = accepted.facts.measurements if accepted else None
    if isinstance(measured, Absent) or before is None or isinstance(before, Absent):
        return ()
    known_figures = {_identity(figure): figure for figure in before.figures}
    return tuple(
        _Pair(was, figure)
        for figure in measured.figures
        if (was := known_figures.get(_identity(figure))) is not None and was.median > 0 and figure.median > 0
    )


def _identity(figure: Figure) -> tuple[object, ...]:
    return figure.measure, figure.subject, figure.cards, figure.name, figure.at, figure.unit


def _stage(stage: str, node: Node, accepted: Report | None) -> Iterator[Outcome]:
    measured = node.measurements
    if isinstance(measured, Absent):
        yield unknown(NODE, measured)
        return
    runs = [run for run in measured.stages if run.stage == stage]
    troubled = False
    for run in runs:
        if run.status in ("failed", "timed_out"):
            troubled = True
            detail = f"It {run.status.replace('_', ' ')}: {run.detail}"
            yield Outcome(Status.unknown, _subject(node, run.cards, ""), detail=detail)
    pairs = [pair for pair in _pairs(measured, accepted) if pair.now.stage == stage]
    slow = [pair for pair in pairs if pair.limits.status(pair.behind) is not Status.passed]
    yield from (_slow(pair, node, accepted) for pair in slow)
    if troubled or slow:
        return
    if pairs:
        worst = max(pairs, key=lambda pair: pair.behind)
        ahead = "behind" if worst.behind >= 0 else "ahead"
        yield passed(
            f"{len(pairs)} figures; the worst, {figure_name(worst.now)}, is {abs(worst.behind):.1%} {ahead}."
        )
    else:
        yield skipped(_why_not(stage, measured, accepted, [run.detail for run in runs if run.detail]))


def _why_not(stage: str, measured: Measurements, accepted: Report | None, said: Sequence[str]) -> str:
    if not any(figure.stage == stage for figure in measured.figures):
        return (
            f"Not measured: {said[0]}."
            if said
            else "It does not apply to this node, or was left out for the time."
        )
    if accepted is None:
        return "There is no accepted report to compare with."
    if isinstance(accepted.facts.measurements, Absent):
        return f"The accepted report holds no measurements (level {accepted.level})."
    return "The accepted report holds no figure of the same measure, size, type and cards."


def _slow(pair: _Pair, node: Node, accepted: Report | None) -> Outcome:
    was, now = pair.was, pair.now
    again = f" after {len(now.tries)} readings" if now.tries else ""
    detail = (
        f"{figure_name(now)}: {number(now.median)} {unit_words(now.unit)}{again}, {pair.behind:.1%} behind "
        f"the accepted {number(was.median)} (spread {pair.spread:.1%})."
    )
    words: dict[str, Any] = {
        "subject": _subject(node, now.cards, now.name),
        "observed": now.median,
        "expected": was.median,
        "unit": now.unit,
        "observed_from": "measured in the renter's interpreter",
        "expected_from": f"the accepted report, {accepted.created_at:%Y-%m-%d %H:%M} UTC" if accepted else "",
    }
    failed = pair.limits.status(pair.behind) is Status.fail
    return (fail if failed else warn)(detail, **words)


def _subject(node: Node, keys: Collection[str], name: str) -> Subject:
    cards = {card.key: card for card in node.known_cards}
    if len(keys) == 1:
        (key,) = keys
        return of_card(cards[key]) if key in cards else Subject(kind="card", key=key, label=key)
    labels = [cards[key].short_name if key in cards else key for key in keys]
    label = name or " → ".join(labels)
    return Subject(kind="pair" if len(labels) == 2 and not name else "group", key="+".join(keys), label=label)


def _data(node: Node) -> Iterator[Outcome]:
    measured = node.measurements
    if isinstance(measured, Absent):
        yield unknown(NODE, measured)
        return
    wrong = [check for check in measured.checks if check.wrong]
    for check in wrong:
        yield fail(
            f"{check.check}: {check.wrong:,} of {check.compared:,} are wrong.",
            subject=_subject(node, check.cards, check.name),
            observed=check.wrong,
            expected=0,
            expected_from="what was written",
        )
    if wrong:
        return
    compared = sum(check.compared for check in measured.checks)
    yield passed(f"{compared:,} compared.", observed=0) if compared else skipped("Nothing was compared.")
