"""A check as JUnit XML: a test case a finding, for continuous integration."""

from __future__ import annotations

from nodecheck.facts import Absent
from nodecheck.rental.result import CheckResult
from nodecheck.report import junit


def render(result: CheckResult) -> str:
    """The findings of a check, as a report's are shown."""
    baseline = result.baseline
    return junit.suite(
        f"nodecheck.check.{result.kind}",
        result.findings,
        at=result.taken_at,
        seconds=result.seconds,
        properties={
            "status": result.status.value,
            "summary": result.summary,
            "baseline": str(baseline) if isinstance(baseline, Absent) else baseline.sha256,
            "nodecheck": result.tool_version,
        },
    )
