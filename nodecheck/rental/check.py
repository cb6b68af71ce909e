"""One look held against the acceptance and against the look before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from nodecheck import __version__
from nodecheck.facts import Node, known
from nodecheck.facts.measurements import Figure
from nodecheck.judge import Finding, Status, Verdict
from nodecheck.profile import NO_PROFILE, Profile
from nodecheck.rental import active
from nodecheck.rental.drift import REGISTRY, Drift, findings
from nodecheck.rental.drift.baseline import NO_BASELINE
from nodecheck.rental.episodes import changes
from nodecheck.rental.readings import readings
from nodecheck.rental.result import Baseline, Change, CheckResult
from nodecheck.rental.state import Acceptance, Look, State, StateError, Terms
from nodecheck.report import document
from nodecheck.report.text import plural

T = TypeVar("T")

Compare = Callable[[Collection[Finding], datetime], tuple[Change, ...]]
"""How findings differ from those of the check before: `State.changes`."""


def check(
    node: Node,
    accepted: Acceptance | None,
    before: Look | None,
    *,
    suggested: Profile = NO_PROFILE,
    measured: Node | None = None,
    further: Sequence[Finding] = (),
    seconds: float,
    notes: Sequence[str] = (),
    compare: Compare | None = None,
) -> CheckResult:
    """What is to be said of `node`, and what of it is new.

    `suggested` is asked where nothing was accepted. `measured` is the node with the measurements of an active check;
    `further` are findings from elsewhere: of the rental's end. Without `compare` everything that is not right is new.
    """
    report = accepted.report if accepted else None
    drift = Drift(
        baseline=report.facts if report else None,
        before=before.node if before else None,
        now=node,
        profile=report.profile if report else suggested,
    )
    found = (*findings(drift, report), *further)
    figures: tuple[Figure, ...] = ()
    if measured is not None:
        found = (*found, *active.findings(measured, report))
        figures = measured.measurements.figures if known(measured.measurements) else ()
    status = verdict(found)
    return CheckResult(
        tool_version=__version__,
        taken_at=node.taken_at,
        kind="passive" if measured is None else "active",
        seconds=round(seconds, 3),
        baseline=_baseline(accepted) if accepted else NO_BASELINE,
        status=status,
        summary=_summary(found, accepted),
        findings=found,
        changes=tuple(
            change for change in (compare or all_new)(found, node.taken_at) if not _no_news(change)
        ),
        readings=readings(node),
        figures=figures,
        notes=tuple(notes),
    )


def verdict(found: Collection[Finding]) -> Status:
    """fail > unknown (required) > warn > pass, over what is not set aside."""
    statuses = {
        f.status for f in found if f.waived is None and (f.required or f.status is not Status.unknown)
    }
    order = (Status.fail, Status.unknown, Status.warn)
    return next((status for status in order if status in statuses), Status.passed)


def _no_news(change: Change) -> bool:
    rule = REGISTRY.get(change.finding.id)
    return (
        change.what == "gone" and rule is not None and rule.fleeting and change.finding.status is Status.warn
    )


def _baseline(accepted: Acceptance) -> Baseline:
    report = accepted.report
    return Baseline(
        accepted_at=report.created_at,
        profile=report.profile.name,
        verdict=report.judgement.verdict,
        sha256=accepted.sha256,
    )


def all_new(found: Collection[Finding], at: datetime) -> tuple[Change, ...]:
    """The changes of a first check: everything that is not right."""
    return changes({}, found, at)


def _summary(found: Collection[Finding], accepted: Acceptance | None) -> str:
    counted = [finding for finding in found if finding.waived is None]
    passed = sum(finding.status is Status.passed for finding in counted)
    fails = {finding.id for finding in counted if finding.status is Status.fail}
    warns = {finding.id for finding in counted if finding.status is Status.warn}
    holes = {finding.id for finding in counted if finding.status is Status.unknown and finding.required}
    parts = [
        plural(len(fails), "problem") if fails else "",
        plural(len(warns), "warning") if warns else "",
        f"{len(holes)} not seen" if holes else "",
        plural(passed, "check") + " passed",
    ]
    told = ", ".join(part for part in parts if part)
    if accepted is None:
        return f"{told}; {NO_BASELINE.detail}."
    report = accepted.report
    return (
        f"{told}, held against {report.profile.name} as accepted on {report.created_at:%Y-%m-%d %H:%M} UTC."
    )


class Memory:
    """The state of the node as far as it can be had. What cannot be had or kept is told in `notes`, and is no reason to
    lose a check."""

    def __init__(self, folder: Path | None = None) -> None:
        self._notes: list[str] = []
        self._state: State | None = None
        self._state = self._try(lambda: State(folder))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence each, each once."""
        return tuple(dict.fromkeys((*self._notes, *(self._state.notes if self._state else ()))))

    def acceptance(self, named: Path | None = None) -> Acceptance | None:
        """What the node is held against: the last accepted report, or the one that is named. The rental's terms are
        those that were kept, whatever is named.

        Raises `ReportError` where the named one cannot be read or accepts nothing.
        """
        state = self._state
        kept = self._try(state.acceptance) if state else None
        if named is None:
            return kept
        raw = document.read(named)
        report = document.parse(raw, named)
        verdict = report.judgement.verdict
        if verdict not in (Verdict.accepted, Verdict.accepted_with_warnings):
            raise document.ReportError(
                f"{named} says {verdict.value}: a node is held against a report that accepts it"
            )
        return Acceptance(report, hashlib.sha256(raw).hexdigest(), kept.terms if kept else Terms())

    def last_look(self) -> Look | None:
        state = self._state
        return self._try(state.last_look) if state else None

    def changes(self, found: Collection[Finding], at: datetime) -> tuple[Change, ...]:
        """How findings differ from those of the check before; all that is not right where that is not known."""
        state = self._state
        told = self._try(lambda: state.changes(found, at)) if state else None
        return all_new(found, at) if told is None else told

    def record(self, result: CheckResult, node: Node) -> None:
        if state := self._state:
            self._try(lambda: state.record(result, node))

    def close(self) -> None:
        if state := self._state:
            self._try(state.close)

    def _try(self, do: Callable[[], T]) -> T | None:
        try:
            return do()
        except StateError as error:
            self._notes.append(f"This check is not remembered, or not held against what was: {error}.")
            return None
