"""A finding from the check that first sees it to the last that does: how each check carries its episode on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Literal

from nodecheck.judge import Finding, Status
from nodecheck.rental.result import Change


class Gravity(IntEnum):
    """What a finding asks for, in rising order; from `warns` on it is not right."""

    right = 0
    unseen = 1
    """Not seen, and not required: what was wrong before still may be."""
    warns = 2
    unknown = 3
    fails = 4


def gravity_of(finding: Finding) -> Gravity:
    if finding.status is Status.skipped or (finding.status is Status.unknown and not finding.required):
        return Gravity.unseen
    if finding.status is Status.passed or finding.waived is not None:
        return Gravity.right
    return {
        Status.warn: Gravity.warns,
        Status.unknown: Gravity.unknown,
        Status.fail: Gravity.fails,
    }[finding.status]


@dataclass(frozen=True)
class Ongoing:
    """An episode that is not over."""

    finding: Finding
    gravity: Gravity
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True)
class Step:
    """How a check carries an episode on, begins one or ends it."""

    what: Literal["new", "worse", "better", "gone"] | None
    finding: Finding
    gravity: Gravity
    first_seen: datetime
    last_seen: datetime


def steps(
    ongoing: Mapping[tuple[str, str], Ongoing], findings: Iterable[Finding], at: datetime
) -> Iterator[Step]:
    """What a check makes of the episodes.

    A failure that cannot be seen any more is neither gone nor better: the episode goes on as grave as it was. Nor is
    it gone where the check says of the whole node that it could not look.
    """
    now: dict[tuple[str, str], tuple[Gravity, Finding]] = {}
    blind: set[str] = set()
    for finding in findings:
        key, gravity = (finding.id, finding.subject.key), gravity_of(finding)
        if key not in now or gravity > now[key][0]:
            now[key] = gravity, finding
        if finding.subject.kind == "node" and finding.status in (Status.unknown, Status.skipped):
            blind.add(finding.id)
    for key, (gravity, finding) in now.items():
        before = ongoing.get(key)
        if gravity < Gravity.warns:
            continue
        if before is None:
            yield Step("new", finding, gravity, at, at)
            continue
        if gravity is Gravity.unknown:
            gravity = max(gravity, before.gravity)
        what: Literal["worse", "better"] | None = None
        if gravity != before.gravity:
            what = "worse" if gravity > before.gravity else "better"
        yield Step(what, finding, gravity, before.first_seen, max(at, before.last_seen))
    for key, before in ongoing.items():
        seen = now[key][0] if key in now else Gravity.unseen if key[0] in blind else Gravity.right
        if seen is Gravity.right:
            yield Step("gone", before.finding, before.gravity, before.first_seen, before.last_seen)


def changes(
    ongoing: Mapping[tuple[str, str], Ongoing], findings: Iterable[Finding], at: datetime
) -> tuple[Change, ...]:
    """What a check has to tell of them."""
    return tuple(
        Change(what=step.what, finding=step.finding, first_seen=step.first_seen, last_seen=step.last_seen)
        for step in steps(ongoing, findings, at)
        if step.what is not None
    )
