"""What one check of a rented node says: the document that every output of `nodecheck check` is made from."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import AwareDatetime

from nodecheck.facts import Absent, Fact
from nodecheck.facts.measurements import Figure
from nodecheck.judge import Finding, Status, Subject, Verdict

FORMAT: Final = "nodecheck-check/1"


class Baseline(Fact):
    """The acceptance that a check holds the node against."""

    accepted_at: AwareDatetime
    """UTC, `Report.created_at`."""
    profile: str
    verdict: Verdict
    sha256: str
    """Of the accepted report.json."""


class Change(Fact):
    """A finding that is not as the check before left it."""

    what: Literal["new", "worse", "better", "gone"]
    finding: Finding
    """As it is now; one that is gone, as it was last."""
    first_seen: AwareDatetime
    """UTC, of this episode: a finding that was gone in between begins anew."""
    last_seen: AwareDatetime


class Reading(Fact):
    """A number that is worth a graph: a gauge, or a counter that only ever rises until it is reset."""

    name: str
    """As OpenMetrics would have it, without prefix, with the unit at the end: `temperature_celsius`."""
    subject: Subject
    value: float
    counter: bool = False


class CheckResult(Fact):
    """One check, whole."""

    format: Literal["nodecheck-check/1"] = FORMAT
    tool_version: str
    taken_at: AwareDatetime
    """UTC."""
    kind: Literal["passive", "active"]
    seconds: float
    baseline: Baseline | Absent
    status: Status
    """fail > unknown (required) > warn > pass, over the findings that are not waived."""
    summary: str
    """The status in one sentence."""
    findings: tuple[Finding, ...]
    changes: tuple[Change, ...] = ()
    """Since the check before; of the first check, everything that is not right."""
    readings: tuple[Reading, ...] = ()
    figures: tuple[Figure, ...] = ()
    """Measured by `--active`."""
    notes: tuple[str, ...] = ()
    """A sentence each: why nothing was measured, what could not be kept."""


def dump(result: CheckResult) -> str:
    """The check as JSON."""
    return result.model_dump_json(indent=1) + "\n"
