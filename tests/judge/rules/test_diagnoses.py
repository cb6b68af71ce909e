"""Rules on what other tools said."""

from __future__ import annotations

import pytest

from nodecheck.facts.diagnosis import Diagnosis, Outcome
from nodecheck.judge import Cause, Status
from tests.judge.cases import Case, check


def said(outcome: Outcome, test: str = "memory", card: str = "", detail: str = "") -> Diagnosis:
    return Diagnosis(tool="dcgmi diag", test=test, card=card, outcome=outcome, detail=detail)


RAN = (said("pass", "software"), said("skip", "nvlink"))
CASES = [
    Case("health.diagnosis", {}, Status.skipped, says="handed in"),
    Case(
        "health.diagnosis", {"diagnoses": RAN}, Status.passed, says="1 test passed (software)", done="passed"
    ),
    Case(
        "health.diagnosis",
        {"diagnoses": (*RAN, said("fail", "pcie", "card 0", "Bit error"))},
        Status.fail,
        says="pcie: fail: Bit error",
        cause=Cause.faulty,
        count=1,
        done="failed",
    ),
    Case(
        "health.diagnosis",
        {"diagnoses": (*RAN, said("warn", "software", detail="Persistence mode is disabled"))},
        Status.warn,
        cause=Cause.misconfigured,
        done="a setting",
    ),
    Case(
        "health.diagnosis",
        {"diagnoses": (said("skip"), said("unknown"))},
        Status.unknown,
        says="no test came to a verdict",
        done="nothing ran",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule(case: Case) -> None:
    check(case)
