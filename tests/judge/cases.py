"""A fault planted in a healthy node, and what one rule must say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nodecheck.facts import Absent, Level, Node, Why
from nodecheck.judge import Cause, Finding, Judgement, Owner, Status, Verdict, judge
from nodecheck.profile import Profile, load
from tests.healthy import View, change, node

DENIED = Absent(why=Why.no_permission, detail="NVML_ERROR_NO_PERMISSION (4): Insufficient Permissions")
UNSUPPORTED = Absent(why=Why.not_supported, detail="NVML_ERROR_NOT_SUPPORTED (3): Not Supported")
HUNG = Absent(why=Why.timed_out, detail="no answer within 10 s")
UNASKED = Absent(why=Why.not_asked)

GRAVITY = (Status.skipped, Status.passed, Status.warn, Status.unknown, Status.fail)


@dataclass(frozen=True)
class Case:
    """`faults` (path → value) in a healthy node of `profile` make `id` say `status`, at its gravest."""

    id: str
    faults: Mapping[str, Any]
    status: Status
    profile: str = "h200x4"
    view: View = "bare"
    board: int | None = None
    cause: Cause | None = None
    owner: Owner | None = None
    says: str = ""
    """A part of the sentence."""
    count: int | None = None
    """How many findings have that status."""
    but: Callable[[Profile], Profile] | None = None
    """What is different about the profile that the node is judged against."""
    level: Level = "quick"
    done: str = ""
    """The faults in words, where they are whole tuples of facts."""

    @property
    def name(self) -> str:
        """For pytest: what was done, and what must come of it."""
        done = (
            self.done
            or ",".join(f"{path}={_short(value)}" for path, value in self.faults.items())
            or "healthy"
        )
        return f"{self.id}:{self.profile}:{done}:{self.status.value}"


def _short(value: Any) -> str:
    return value.why.value if isinstance(value, Absent) else str(value)[:30]


@cache
def profile(name: str) -> Profile:
    return load(name)


@cache
def healthy(name: str, view: View = "bare", board: int | None = None, level: Level = "quick") -> Node:
    return node(profile(name), view=view, board=board, level=level)


def faulty(
    name: str,
    faults: Mapping[str, Any],
    view: View = "bare",
    board: int | None = None,
    level: Level = "quick",
) -> Node:
    """A healthy node of the profile with these facts changed."""
    changed = healthy(name, view, board, level)
    for path, value in faults.items():
        changed = change(changed, path, value)
    return changed


def found(judgement: Judgement, id: str) -> list[Finding]:
    """The findings of one rule."""
    return [finding for finding in judgement.findings if finding.id == id]


def check(case: Case) -> None:
    """Judge the node of the case and hold the finding against it."""
    spec = case.but(profile(case.profile)) if case.but else profile(case.profile)
    judgement = judge(faulty(case.profile, case.faults, case.view, case.board, case.level), spec)
    findings = found(judgement, case.id)
    gravest = max(findings, key=lambda finding: GRAVITY.index(finding.status))
    assert gravest.status is case.status, [(f.status.value, f.detail) for f in findings]
    assert case.says in gravest.detail
    if case.count is not None:
        assert sum(f.status is case.status for f in findings) == case.count
    if case.cause is not None:
        assert gravest.cause is case.cause
    if case.owner is not None:
        assert gravest.owner is case.owner
    assert all(f.expected_from for f in findings if f.expected is not None)
    if gravest.status in (Status.warn, Status.fail):
        assert gravest.detail and gravest.meaning and gravest.next_step and gravest.repeat
        assert gravest.observed is not None
    if gravest.status is Status.unknown:
        assert gravest.detail and gravest.cause is Cause.not_visible
    check_roots(judgement)


def check_roots(judgement: Judgement) -> None:
    """A root is a finding that is wrong itself, and what is wrong has a reason that is told."""
    wrong = {f.id for f in judgement.findings if f.status in (Status.warn, Status.fail, Status.unknown)}
    for finding in judgement.findings:
        assert finding.root is None or (finding.id in wrong and finding.root in wrong)
    assert bool(judgement.reasons) is (judgement.verdict is not Verdict.accepted)
