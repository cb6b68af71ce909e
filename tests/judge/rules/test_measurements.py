from __future__ import annotations

import pytest

from nodecheck.judge import Status
from tests.judge.cases import Case, check, profile

CASES = [
    Case(
        "measurements.performed",
        {},
        Status.skipped,
        says=f"{len(profile('h200x4').figures)} figures of the profile were not held against this node",
    ),
    Case("measurements.performed", {}, Status.skipped, profile="h200x8", says="all_reduce.busbw"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)
