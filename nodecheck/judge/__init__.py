"""From facts and a profile to findings and a verdict; pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby

from nodecheck.facts import NOT_ASKED, Node
from nodecheck.judge import rules as _rules  # noqa: F401  (registers every rule)
from nodecheck.judge.finding import Cause, Finding, Judgement, LedgerEntry, Owner, Status, Subject, Verdict
from nodecheck.judge.roots import with_roots
from nodecheck.judge.rule import REGISTRY, Described, Outcome, Rule
from nodecheck.profile import Profile

__all__ = [
    "REGISTRY",
    "Cause",
    "Described",
    "Finding",
    "Judgement",
    "LedgerEntry",
    "Owner",
    "Rule",
    "Status",
    "Subject",
    "Verdict",
    "find",
    "judge",
]


BROKEN_RULE = "nodecheck"
"""The door that the ledger names where a rule itself broke."""


def judge(
    node: Node, profile: Profile, waivers: Mapping[str, str] | None = None, *, named: bool = True
) -> Judgement:
    """Judge `node` against `profile`.

    `waivers` maps finding ids to the reason for setting their warnings and failures aside. `named` is False
    where the profile was only suggested: then the verdict is always INCOMPLETE.

    Raises ValueError for a waiver of an id that no finding has. A rule that breaks gives an `unknown`.
    """
    waivers = waivers or {}
    strange = sorted(set(waivers) - set(REGISTRY))
    if strange:
        raise ValueError(f"no finding has the id {', '.join(strange)}")
    asked = (rule for rule in REGISTRY.values() if node.level != "quick" or not rule.under_load)
    findings = find(((rule, partial(rule.judge, node, profile)) for rule in asked), profile, waivers)
    verdict, reasons = _verdict(findings, named)
    return Judgement(
        profile=profile.name,
        named=named,
        level=node.level,
        verdict=verdict,
        summary=_summary(verdict, profile, node, findings, named),
        reasons=tuple(reasons),
        findings=tuple(findings),
        ledger=_ledger(node, profile, findings),
    )


def find(
    asked: Iterable[tuple[Described, Callable[[], Iterable[Outcome]]]],
    profile: Profile,
    waivers: Mapping[str, str],
) -> list[Finding]:
    """The findings of these rules, each given with what asks it, and which of them follows from which."""
    return with_roots(
        _finding(rule, outcome, profile, waivers.get(rule.id))
        for rule, ask in asked
        for outcome in _outcomes(ask)
    )


def _outcomes(ask: Callable[[], Iterable[Outcome]]) -> Iterator[Outcome]:
    """What a rule says. Silence and a fault in the rule are no answer: both are unknown, never a pass."""
    answered = False
    try:
        for outcome in ask():
            answered = True
            yield outcome
    except Exception as error:
        detail = f"This check itself broke, please report it: {type(error).__name__}: {error}"
        yield Outcome(Status.unknown, detail=detail, door=BROKEN_RULE)
        return
    if not answered:
        yield Outcome(Status.unknown, detail="This check gave no answer, please report it.", door=BROKEN_RULE)


def _finding(rule: Described, outcome: Outcome, profile: Profile, waived: str | None) -> Finding:
    rule = rule.on(profile.vendor)
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
        expected_from=outcome.expected_from or ("" if outcome.expected is None else f"rule {rule.id}"),
        required=profile.requires(rule.id, rule.holds_up(outcome)),
        door=outcome.door or rule.door,
        cause=cause,
        owner=(outcome.owner or rule.owner) if trouble else None,
        meaning=rule.meaning if trouble else "",
        next_step=(outcome.next_step or rule.next_step) if trouble else "",
        repeat=rule.repeat,
        waived=waived if trouble else None,
    )


def _verdict(findings: list[Finding], named: bool) -> tuple[Verdict, list[str]]:
    """Precedence: fail > unknown (required) > warn > pass. What was waived counts as a warning at most."""
    counted = [finding for finding in findings if finding.waived is None]
    fails = [f for f in counted if f.status is Status.fail]
    holes = [f for f in counted if f.status is Status.unknown and f.required]
    warns = [f for f in counted if f.status is Status.warn]
    waived = [f for f in findings if f.waived is not None]
    reasons = [
        *_reasons(fails, counted),
        *_reasons(holes, counted),
        *_reasons(warns, counted),
        *_reasons(waived, counted),
    ]
    if not named:
        return Verdict.incomplete, ["The profile was only suggested; name what was rented.", *reasons]
    if fails:
        return Verdict.rejected, reasons
    if not any(f.status is Status.passed for f in findings):
        return Verdict.incomplete, ["Nothing at all could be confirmed.", *reasons]
    if holes:
        return Verdict.incomplete, reasons
    if warns or waived:
        return Verdict.accepted_with_warnings, reasons
    return Verdict.accepted, reasons


_CAUSES = tuple(Cause)


def _reasons(some: list[Finding], counted: list[Finding]) -> Iterator[str]:
    """A sentence for each finding that follows from no other; once where it is the same of several cards."""

    def order(finding: Finding) -> int:
        return _CAUSES.index(finding.cause) if finding.cause else len(_CAUSES)

    first = [f for f in sorted(some, key=order) if f.root is None]
    for (finding_id, waived, detail), group in groupby(first, key=lambda f: (f.id, f.waived, f.detail)):
        aside = "" if waived is None else f"set aside by waiver ({waived}): "
        sentence = f"{finding_id} ({_subjects(list(group))}): {aside}{detail}"
        behind = sum(f.root == finding_id for f in counted)
        if behind:
            sentence += f" {behind} more follow{'s' if behind == 1 else ''} from it."
        yield sentence


def _subjects(findings: list[Finding]) -> str:
    if len(findings) > 3:
        return f"{len(findings)} {findings[0].subject.kind}s"
    return ", ".join(f.subject.label for f in findings)


def _summary(verdict: Verdict, profile: Profile, node: Node, findings: list[Finding], named: bool) -> str:
    counted = [finding for finding in findings if finding.waived is None]
    waived = len(findings) - len(counted)
    passed, unknown, skipped = (
        sum(f.status is status for f in counted) for status in (Status.passed, Status.unknown, Status.skipped)
    )
    parts = [
        f"{passed} checks passed",
        _folded([f.id for f in counted if f.status is Status.fail], "problem"),
        _folded([f.id for f in counted if f.status is Status.warn], "warning"),
        f"{waived} set aside by waiver" if waived else "",
        f"{unknown} unknown" if unknown else "",
        f"{skipped} skipped" if skipped else "",
    ]
    load = "; nothing was measured under load" if node.level == "quick" else ""
    guess = "" if named else " (only suggested: name what was rented with --profile)"
    told = ", ".join(part for part in parts if part)
    return f"{verdict.value} {profile.name}{guess} at level {node.level}: {told}{load}."


def _folded(ids: list[str], noun: str) -> str:
    """`5 problems (7 findings)`: one that shows on several cards or pairs is one problem."""
    if not ids:
        return ""
    count = len(set(ids))
    behind = "" if count == len(ids) else f" ({len(ids)} findings)"
    return f"{count} {noun}{'' if count == 1 else 's'}{behind}"


_OF_NVIDIA = ("nvml", "driver_proc", "libcuda")
"""Doors to NVIDIA's cards alone."""


def _ledger(node: Node, profile: Profile, findings: Iterable[Finding]) -> tuple[LedgerEntry, ...]:
    """Every door that was tried, then those that findings miss and nobody tried.

    Closed doors to the other maker's cards are left out, unless a finding wanted to look through one.
    """
    unseen: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status is Status.unknown and finding.id not in unseen.setdefault(finding.door, []):
            unseen[finding.door].append(finding.id)
    entries = [
        LedgerEntry(door=d.name, open=d.open, detail=d.detail, unknown_findings=tuple(unseen.pop(d.name, ())))
        for d in node.doors
        if profile.vendor != "amd" or d.name not in _OF_NVIDIA or d.open is True or d.name in unseen
    ]
    broken = unseen.pop(BROKEN_RULE, None)
    entries += [
        LedgerEntry(door=name, open=NOT_ASKED, detail="not tried in this run", unknown_findings=tuple(ids))
        for name, ids in unseen.items()
    ]
    if broken:
        detail = "checks that broke by a fault of nodecheck"
        entries.append(
            LedgerEntry(door=BROKEN_RULE, open=False, detail=detail, unknown_findings=tuple(broken))
        )
    return tuple(entries)
