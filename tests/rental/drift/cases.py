"""A change planted between acceptance and now, and what one rule of drift must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from nodecheck.facts import Node, known
from nodecheck.judge import Finding, Status, find, judge
from nodecheck.profile import Profile
from nodecheck.rental.drift import REGISTRY, Drift
from nodecheck.report import document
from nodecheck.report.document import Report
from tests.healthy import View, change
from tests.judge.cases import GRAVITY, healthy, profile

MINUTES_OF_ACCEPTANCE = -2 * 24 * 60.0
MINUTES_OF_LAST_LOOK = -15.0


@dataclass(frozen=True)
class Case:
    """`now` (path → value) changed in a node that was healthy makes the rule `id` say `status`, at its gravest."""

    id: str
    now: Mapping[str, Any]
    status: Status
    says: str = ""
    """A part of the sentence."""
    was: Mapping[str, Any] = field(default_factory=dict)
    """What is different at acceptance."""
    before: Mapping[str, Any] | None = None
    """And at the last look; None: there was none."""
    profile: str = "h200x4"
    view: View = "bare"
    accepted: bool = True
    """Whether the node was accepted at all."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What the profile says otherwise."""
    name: str = ""

    def __str__(self) -> str:
        done = (
            self.name
            or ",".join(f"{path}={str(value)[:24]}" for path, value in self.now.items())
            or "unchanged"
        )
        return f"{self.id}:{done}:{self.status.value}"


def at(node: Node, minutes: float) -> Node:
    """The node so many minutes later, up all the while."""
    later = node.model_copy(update={"taken_at": node.taken_at + timedelta(minutes=minutes)})
    if not known(node.host) or not known(node.host.uptime_seconds):
        return later
    up = node.host.uptime_seconds + 60 * (minutes - MINUTES_OF_ACCEPTANCE)
    return change(later, "host.uptime_seconds", up)


def changed(node: Node, faults: Mapping[str, Any]) -> Node:
    for path, value in faults.items():
        node = change(node, path, value)
    return node


def drift_of(case: Case) -> tuple[Drift, Report | None]:
    spec: Profile = profile(case.profile).model_copy(update=dict(case.spec))
    node = healthy(case.profile, case.view)
    baseline = changed(at(node, MINUTES_OF_ACCEPTANCE), case.was)
    report = (
        document.build(baseline, spec, judge(baseline, spec), created_at=baseline.taken_at)
        if case.accepted
        else None
    )
    before = None if case.before is None else changed(at(node, MINUTES_OF_LAST_LOOK), case.before)
    return Drift(baseline if case.accepted else None, before, changed(at(node, 0), case.now), spec), report


def found(case: Case) -> list[Finding]:
    drift, _ = drift_of(case)
    rule = REGISTRY[case.id]
    return find([(rule, partial(rule.compare, drift))], drift.profile, {})


def check(case: Case) -> None:
    """Ask the rule of the case and hold its gravest finding against it."""
    told = found(case)
    assert told, f"{case.id} said nothing"
    gravest = max(told, key=lambda finding: GRAVITY.index(finding.status))
    assert gravest.status is case.status, [(f.status.value, f.detail) for f in told]
    assert case.says in gravest.detail
    for finding in told:
        assert finding.detail
        assert finding.detail[0].isupper() or finding.detail[0].isdigit() or finding.detail[0] == "/"
        if finding.expected is not None:
            assert finding.expected_from
        if finding.status in (Status.warn, Status.fail):
            assert finding.meaning
            assert finding.next_step
            assert finding.repeat
            assert finding.observed is not None
