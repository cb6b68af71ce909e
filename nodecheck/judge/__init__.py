"""From facts and a profile to findings and a verdict; pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping

from nodecheck.facts import NOT_ASKED, Node
from nodecheck.judge import rules as _rules  # noqa: F401  (registers every rule)
from nodecheck.judge.finding import Cause, Finding, Judgement, LedgerEntry, Owner, Status, Subject, Verdict
from nodecheck.judge.rule import REGISTRY, Outcome, Rule
from nodecheck.profile import Profile

__all__ = [
    "REGISTRY",
    "Cause",
    "Finding",
    "Judgement",
    "LedgerEntry",
    "Owner",
    "Rule",
    "Status",
    "Subject",
    "Verdict",
    "judge",
]


def judge(node: Node, profile: Profile, waivers: Mapping[str, str] | None = None, *, named: bool = True) -> Judgement:
    """Judge `node` against `profile`.

    `waivers` maps finding ids to the reason for setting their warnings and failures aside. `named` is False
    where the profile was only suggested: then the verdict is at most INCOMPLETE.
    """
    waivers = waivers or {}
    findings = [
        _finding(rule, outcome, profile, waivers.get(rule.id))
        for rule in REGISTRY.values()
        for outcome in rule.judge(node, profile)
    ]
    verdict, reasons = _verdict(findings, named)
    return Judgement(
        profile=profile.name,
        named=named,
        level=node.level,
        verdict=verdict,
        summary=_summary(verdict, profile, node, findings),
        reasons=tuple(reasons),
        findings=tuple(findings),
        ledger=_ledger(node, findings),
    )


def _finding(rule: Rule, outcome: Outcome, profile: Profile, waived: str | None) -> Finding:
    trouble = outcome.status in (Status.warn, Status.fail)
    cause: Cause | None = None
    if trouble:
        cause = outcome.cause or rule.cause
    elif outcome.status is Status.unknown:
        cause = Cause.not_visible
    return Finding(
        id=rule.id,
        subject=outcome.subject,
        status=outcome.status,
        title=rule.title,
        detail=outcome.detail,
        observed=outcome.observed,
        expected=outcome.expected,
        unit=outcome.unit,
        observed_from=outcome.observed_from or rule.reads,
        expected_from=outcome.expected_from,
        required=profile.requires(rule.id, rule.required),
        door=outcome.door or rule.door,
        cause=cause,
        owner=(outcome.owner or rule.owner) if trouble else None,
        meaning=rule.meaning if trouble else "",
        next_step=(outcome.next_step or rule.next_step) if trouble else "",
        repeat=rule.repeat,
        waived=waived if trouble else None,
    )


def _verdict(findings: list[Finding], named: bool) -> tuple[Verdict, list[str]]:
    """Precedence: fail > unknown (required) > warn > pass. What was waived does not count."""
    counted = [finding for finding in findings if finding.waived is None]
    fails = [f for f in counted if f.status is Status.fail]
    holes = [f for f in counted if f.status is Status.unknown and f.required]
    warns = [f for f in counted if f.status is Status.warn]
    reasons = [f"{f.id} ({f.subject.label}): {f.detail}" for f in (*fails, *holes, *warns)]
    if fails:
        return Verdict.rejected, reasons
    if not any(f.status is Status.passed for f in findings):
        return Verdict.incomplete, ["Nothing at all could be confirmed.", *reasons]
    if not named:
        return Verdict.incomplete, ["The profile was only suggested; name it to accept the node.", *reasons]
    if holes:
        return Verdict.incomplete, reasons
    if warns:
        return Verdict.accepted_with_warnings, reasons
    return Verdict.accepted, reasons


def _summary(verdict: Verdict, profile: Profile, node: Node, findings: list[Finding]) -> str:
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    tail = ", ".join(
        f"{counts[status]} {word}"
        for status, word in (
            (Status.fail, "failed"),
            (Status.warn, "warned"),
            (Status.unknown, "unknown"),
            (Status.skipped, "skipped"),
        )
        if counts[status]
    )
    load = "; nothing was measured under load" if node.level == "quick" else ""
    return (
        f"{verdict.value} {profile.name} at level {node.level}: {counts[Status.passed]} checks passed"
        f"{', ' + tail if tail else ''}{load}."
    )


def _ledger(node: Node, findings: list[Finding]) -> tuple[LedgerEntry, ...]:
    unseen: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status is Status.unknown and finding.id not in unseen.setdefault(finding.door, []):
            unseen[finding.door].append(finding.id)
    entries = [
        LedgerEntry(door=d.name, open=d.open, detail=d.detail, unknown_findings=tuple(unseen.pop(d.name, ())))
        for d in node.doors
    ]
    entries += [
        LedgerEntry(door=name, open=NOT_ASKED, detail="not tried in this run", unknown_findings=tuple(ids))
        for name, ids in unseen.items()
        if ids
    ]
    return tuple(entries)

