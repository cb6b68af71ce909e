"""What differs between two reports: verdicts, facts, figures against their own spreads, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import AwareDatetime

from nodecheck.facts import Absent, Fact, Level
from nodecheck.facts.comparison import Comparison, compare, labels
from nodecheck.facts.measurements import Conditions, Figure
from nodecheck.judge import Finding, Status, Verdict
from nodecheck.profile.model import MEASURES
from nodecheck.report.document import Report

FORMAT: Final = "nodecheck-diff/1"

LEAST_SHARE = 0.01
"""A difference of medians up to this share says nothing, however small the spreads."""
LEAST_REPETITIONS = 3
"""Of a figure on both sides: fewer have no spread to hold a difference against."""


class Side(Fact):
    """One of the two reports."""

    profile: str
    level: Level
    verdict: Verdict
    summary: str
    created_at: AwareDatetime
    tool_version: str


class Reading(Fact):
    """A figure on one side."""

    median: float
    p5: float
    p95: float
    repetitions: int


class FigureDifference(Fact):
    """One figure at the same conditions on both sides."""

    measure: str
    subject: str
    """Labels of the cards, or the name of a group or disk."""
    at: Conditions
    unit: str
    before: Reading
    after: Reading
    change: float
    """Of the medians, as a share of the one before: −0.05 is 5 % less."""
    beyond_spread: bool | None
    """Whether the ranges p5 to p95 of the two do not meet; None where a side has too few repetitions to say."""
    significant: bool
    """Beyond the spread and beyond `LEAST_SHARE`."""
    better: bool | None
    """Whether more (or less, of times) is better here; None where nobody can say."""


How = Literal["new", "worse", "better", "gone", "unseen", "seen"]


class FindingDifference(Fact):
    """A finding that says something else."""

    id: str
    subject: str
    how: How
    """`gone`: it passes now. `unseen`: whether it is so could be seen before, or was asked, and is not any more:
    never taken for better. `seen`: the other way round, and it passes."""
    before: Status | None
    after: Status | None
    """None: there is no such finding."""
    detail: str
    """What the later report says, or the earlier where the later says nothing."""


class Diff(Fact):
    """Everything that differs, from `before` to `after`; of two nodes, from the one to the other."""

    format: Literal["nodecheck-diff/1"] = FORMAT
    before: Side
    after: Side
    facts: Comparison
    figures: tuple[FigureDifference, ...]
    """Every figure that both have; `significant` tells those that differ."""
    figures_before_only: int
    figures_after_only: int
    findings: tuple[FindingDifference, ...]


def diff(before: Report, after: Report) -> Diff:
    """What differs from `before` to `after`. A pure function of the two."""
    facts = compare(before.facts, after.facts)
    one = labels(facts.cards, before.facts, "before")
    other = labels(facts.cards, after.facts, "after")
    earlier, later = _figures(before, one), _figures(after, other)
    return Diff(
        before=_side(before),
        after=_side(after),
        facts=facts,
        figures=tuple(_difference(key, earlier[key], later[key]) for key in earlier if key in later),
        figures_before_only=len(earlier.keys() - later.keys()),
        figures_after_only=len(later.keys() - earlier.keys()),
        findings=tuple(_findings(_subjects(before, one), _subjects(after, other))),
    )


def _side(report: Report) -> Side:
    return Side(
        profile=report.profile.name,
        level=report.level,
        verdict=report.judgement.verdict,
        summary=report.judgement.summary,
        created_at=report.created_at,
        tool_version=report.tool.version,
    )


FigureKey = tuple[str, str, str, Conditions, str]
"""Measure, kind of subject, subject, conditions, unit."""


def _figures(report: Report, label: Mapping[str, str]) -> dict[FigureKey, Figure]:
    seen = report.facts.measurements
    if isinstance(seen, Absent):
        return {}
    return {
        (
            figure.measure,
            figure.subject,
            " ".join((figure.name, *(label.get(key, key) for key in figure.cards))).strip(),
            figure.at,
            figure.unit,
        ): figure
        for figure in seen.figures
    }


def _difference(key: FigureKey, before: Figure, after: Figure) -> FigureDifference:
    measure, kind, subject, at, unit = key
    change = (after.median - before.median) / abs(before.median) if before.median else 0.0
    beyond: bool | None = None
    if min(before.repetitions, after.repetitions) >= LEAST_REPETITIONS:
        beyond = after.p5 > before.p95 or before.p5 > after.p95
    more = _more_is_better(measure, unit)
    rose = after.median > before.median
    return FigureDifference(
        measure=measure,
        subject=before.name if kind in ("group", "disk") and before.name else subject,
        at=at,
        unit=unit,
        before=_reading(before),
        after=_reading(after),
        change=round(change, 5),
        beyond_spread=beyond,
        significant=beyond is True and abs(change) > LEAST_SHARE,
        better=None if more is None or after.median == before.median else rose is more,
    )


def _reading(figure: Figure) -> Reading:
    return Reading(median=figure.median, p5=figure.p5, p95=figure.p95, repetitions=figure.repetitions)


def _more_is_better(measure: str, unit: str) -> bool | None:
    if (known := MEASURES.get(measure)) is not None:
        return known.more_is_better
    if unit in ("us", "s"):
        return False
    return True if unit in ("GB/s", "TFLOP/s", "IOPS") else None


FindingKey = tuple[str, str, int]
"""Id, subject's label, and how often the two had come before."""


def _subjects(report: Report, label: Mapping[str, str]) -> dict[FindingKey, Finding]:
    found: dict[FindingKey, Finding] = {}
    for finding in report.judgement.findings:
        parts = finding.subject.key.split("+")
        name = " – ".join(label[part] for part in parts) if all(p in label for p in parts) else None
        name, repeat = name or finding.subject.label, 0
        while (finding.id, name, repeat) in found:
            repeat += 1
        found[finding.id, name, repeat] = finding
    return found


_TROUBLE = (Status.fail, Status.warn)
_GRAVITY: tuple[How, ...] = ("new", "worse", "unseen", "better", "gone", "seen")


def _findings(
    before: Mapping[FindingKey, Finding], after: Mapping[FindingKey, Finding]
) -> list[FindingDifference]:
    found = []
    for key in {**after, **before}:
        was, now = before.get(key), after.get(key)
        told = now or was
        how = _how(was.status if was else None, now.status if now else None)
        if how is not None and told is not None:
            found.append(
                FindingDifference(
                    id=key[0],
                    subject=key[1],
                    how=how,
                    before=was.status if was else None,
                    after=now.status if now else None,
                    detail=told.detail,
                )
            )
    return sorted(found, key=lambda item: (_GRAVITY.index(item.how), item.after is not Status.fail))


def _how(before: Status | None, after: Status | None) -> How | None:
    """What became of a finding; None where it says the same, or nothing that matters."""
    if before is after:
        return None
    if after in _TROUBLE:
        if before not in _TROUBLE:
            return "new"
        return "worse" if after is Status.fail else "better"
    if after is Status.passed:
        if before in _TROUBLE:
            return "gone"
        return "seen" if before is Status.unknown else None
    # Nobody knows any more, or nobody asked.
    if before in _TROUBLE or (after is Status.unknown and before is Status.passed):
        return "unseen"
    return None
