"""What judging gives: findings, the ledger of closed doors, and one verdict."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from nodecheck.facts import Absent, Fact, Level


class Status(str, Enum):
    passed = "pass"
    warn = "warn"
    fail = "fail"
    unknown = "unknown"
    """The profile asks, and it could not be seen."""
    skipped = "skipped"
    """Not asked in this run, or it does not apply; `detail` says which."""


class Cause(str, Enum):
    """What kind of trouble it is; this decides whether a ticket is sent and to whom."""

    not_as_rented = "not_as_rented"
    faulty = "faulty"
    misconfigured = "misconfigured"
    slow = "slow"
    not_visible = "not_visible"


class Owner(str, Enum):
    """Who can mend it."""

    provider = "provider"
    renter = "renter"


Scalar = str | int | float | bool


class Subject(Fact):
    """What a finding is about. `key` joins it with the facts (`Card.key`, `key+key` for a pair or a group)."""

    kind: Literal["node", "card", "pair", "group", "adapter", "disk", "interpreter"]
    key: str
    label: str


NODE = Subject(kind="node", key="node", label="node")


class Finding(Fact):
    """One rule applied to one subject."""

    id: str
    subject: Subject
    status: Status
    title: str
    detail: str
    """A sentence on what was seen here."""
    observed: Scalar | None
    expected: Scalar | None
    unit: str
    observed_from: str
    """The source that was read."""
    expected_from: str
    """The publication, measurement or rule the expectation comes from, with its date."""
    required: bool
    door: str
    cause: Cause | None
    owner: Owner | None
    meaning: str
    next_step: str
    repeat: str
    """A command that shows it again."""
    waived: str | None = None
    """The reason given for setting a warn or fail aside."""
    root: str | None = None
    """Id of the finding that this one follows from: mend that one first."""


class LedgerEntry(Fact):
    """One door and what its being closed cost."""

    door: str
    open: bool | Absent
    detail: str
    unknown_findings: tuple[str, ...]
    """Ids of the findings that are `unknown` because of it."""


class Verdict(str, Enum):
    accepted = "ACCEPTED"
    accepted_with_warnings = "ACCEPTED WITH WARNINGS"
    rejected = "REJECTED"
    incomplete = "INCOMPLETE"


class Judgement(Fact):
    """A node judged against a profile."""

    profile: str
    named: bool = True
    """False where the profile was only suggested: then nothing is accepted."""
    level: Level
    verdict: Verdict
    summary: str
    """The verdict in one sentence: profile, level, how many findings stand behind it."""
    reasons: tuple[str, ...] = ()
    """Why the verdict is not a plain ACCEPTED, the gravest first, a sentence each."""
    findings: tuple[Finding, ...]
    ledger: tuple[LedgerEntry, ...]
