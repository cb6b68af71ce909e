"""Results of checks, made by hand, for what remembers and shows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from nodecheck.facts import NOT_ASKED, Node
from nodecheck.facts.measurements import Conditions, Figure
from nodecheck.judge import Finding, Status, Subject
from nodecheck.rental.result import CheckResult, Reading

START = datetime(2026, 12, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
"""When the first check ran."""


def minutes(count: float) -> datetime:
    """So long after the first check."""
    return START + timedelta(minutes=count)


def check(at: datetime, findings: Sequence[Finding] = (), **more: Any) -> CheckResult:
    """A check without a baseline that found this."""
    return CheckResult(
        tool_version="1",
        taken_at=at,
        summary="Nothing has changed.",
        findings=tuple(findings),
        **{"kind": "passive", "status": Status.passed, "seconds": 0.3, "baseline": NOT_ASKED, **more},
    )


def card(position: int) -> Subject:
    return Subject(kind="card", key=f"GPU-{position}", label=f"GPU {position}")


def readings(node: Node, number: int) -> tuple[Reading, ...]:
    """What a check reads of every card: some gauges that wander, some counters that stand still."""
    found = []
    for i, each in enumerate(node.known_cards):
        subject = Subject(kind="card", key=each.key, label=each.label)
        gauges = {
            "temperature_celsius": 40.0 + (number * 7 + i) % 31,
            "memory_temperature_celsius": 50.0 + (number * 5 + i) % 23,
            "power_watts": 90.0 + (number * 7919 + i * 104729) % 61000 / 100,
            "memory_used_bytes": float((number * 15485863 + i) % 150_000_000_000),
            "utilization_ratio": (number * 37 + i) % 101 / 100,
            "sm_clock_hertz": 345e6 + (number * 13 + i) % 100 * 15e6,
        }
        counters = {
            "ecc_corrected": 3.0,
            "ecc_uncorrected": 0.0,
            "remapped_rows": 0.0,
            "pcie_replays": float(number // 500),
            "nvlink_errors": 0.0,
            "nvlink_recoveries": 1.0,
            "throttled_seconds": number * 0.25,
            "xids": 0.0,
        }
        found += [Reading(name=name, subject=subject, value=value) for name, value in gauges.items()]
        found += [
            Reading(name=name, subject=subject, value=value, counter=True) for name, value in counters.items()
        ]
    return tuple(found)


def figure(measure: str, median: float, node: Node, position: int = 0, **at: Any) -> Figure:
    return Figure(
        measure=measure,
        stage="hbm",
        subject="card",
        cards=(node.known_cards[position].key,),
        at=Conditions(**at),
        unit="GB/s",
        median=median,
        p5=median * 0.99,
        p95=median * 1.01,
        repetitions=20,
    )
