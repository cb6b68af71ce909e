"""Checks to show: one that found nothing new, and one that found every kind of thing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from nodecheck.facts import Absent, Why
from nodecheck.facts.measurements import Conditions, Figure
from nodecheck.judge import Finding, Status, Subject, Verdict
from nodecheck.rental.result import Baseline, Change, CheckResult, Reading
from tests.report import samples

NOW = datetime(2026, 12, 1, 10, 15, tzinfo=timezone.utc)
CARD = Subject(kind="card", key="GPU-0f4a8e5d", label="GPU 3 (0000:9b:00.0)")
OTHER = Subject(kind="card", key="GPU-77aa1122", label="GPU 0 (0000:18:00.0)")
NODE = Subject(kind="node", key="node", label="node")

LOST_LINK = samples.finding(
    "drift.nvlink.active_links",
    Status.fail,
    CARD,
    detail="17 of the card's 18 NVLinks are up.",
    observed=17,
    expected=18,
    unit="links",
)


def change(finding: Finding, what: Any = "new", **more: Any) -> Change:
    return Change(what=what, finding=finding, **{"first_seen": NOW, "last_seen": NOW, **more})


def check(
    findings: tuple[Finding, ...] = (),
    changes: tuple[Change, ...] = (),
    status: Status = Status.passed,
    **more: Any,
) -> CheckResult:
    words: dict[str, Any] = {
        "tool_version": "1.0",
        "taken_at": NOW,
        "kind": "passive",
        "seconds": 0.42,
        "baseline": Baseline(
            accepted_at=NOW - timedelta(days=1), profile="h200x8", verdict=Verdict.accepted, sha256="ab" * 32
        ),
        "summary": "Everything is as it was accepted.",
    }
    return CheckResult(status=status, findings=findings, changes=changes, **{**words, **more})


def quiet() -> CheckResult:
    """All is well, and was so before."""
    return check(
        tuple(samples.finding("drift.cards.count", Status.passed, card) for card in (OTHER, CARD)),
        readings=readings(),
    )


def readings() -> tuple[Reading, ...]:
    return tuple(
        Reading(name=name, subject=card, value=value, counter=name.endswith("_total"))
        for card, value in ((OTHER, 41.0), (CARD, 43.5))
        for name in ("temperature_celsius", "memory_used_bytes", "ecc_corrected_total")
    )


def eventful() -> CheckResult:
    """Every status, every kind of change, figures, readings, notes, no baseline."""
    findings = (
        LOST_LINK,
        samples.finding("drift.pairs", Status.fail, OTHER, root=LOST_LINK.id),
        samples.finding("drift.driver", Status.warn, NODE, observed="580.82", expected="580.65"),
        samples.finding("drift.old", Status.fail, OTHER, detail="It has been so for days."),
        samples.finding("drift.clock", Status.unknown, NODE, detail="Not seen: no permission."),
        samples.finding("drift.fabric", Status.unknown, CARD, required=False),
        samples.finding("drift.cards.count", Status.passed, NODE, observed=8, expected=8),
        samples.finding("drift.skipped", Status.skipped, CARD),
        samples.finding("drift.waived", Status.warn, CARD, waived="agreed, ticket 4711"),
        samples.finding("active.gemm", Status.warn, CARD, observed=780.5, expected=827.25, unit="TFLOP/s"),
        samples.finding("active.latency", Status.fail, CARD, observed=9, expected=5, unit="us"),
    )
    day_before = NOW - timedelta(days=1)
    return check(
        findings,
        (
            change(findings[2]),
            change(findings[0]),
            change(findings[1]),
            change(findings[4], "worse", first_seen=day_before),
            change(findings[6], "better"),
            change(
                samples.finding("drift.xid", Status.warn, OTHER, detail="Xid 31."),
                "gone",
                first_seen=day_before,
                last_seen=NOW - timedelta(hours=1),
            ),
        ),
        Status.fail,
        kind="active",
        baseline=Absent(why=Why.not_present, detail="no report of this node was accepted"),
        summary="1 of GPU 3's NVLinks is down.",
        readings=readings(),
        figures=(
            Figure(
                measure="gemm.bfloat16", stage="gemm", subject="card", cards=(CARD.key,), unit="TFLOP/s",
                at=Conditions(dtype="bfloat16", shape="8192x8192x8192"), median=780.5, p5=779, p95=781, repetitions=9,
            ),
            Figure(
                measure="pairs.one_way", stage="pairs", subject="pair", cards=(OTHER.key, CARD.key), unit="GB/s",
                median=394.9, p5=394, p95=395, repetitions=9,
            ),
        ),
        notes=("The state could not be written: No space left on device",),
    )  # fmt: skip
