"""Operators of training, right and wrong, on one card and on all of them."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import Measurements
from nodecheck.facts.measurements import Check, StageRun
from nodecheck.judge import Cause, Owner, Status, Verdict, judge
from tests.healthy import uuid
from tests.judge.cases import Case, check, faulty, found, healthy, profile

PASS, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.fail, Status.unknown, Status.skipped
RULE = "measurements.operators"


def measured(name: str) -> Measurements:
    measurements = healthy(name, level="standard").measurements
    assert isinstance(measurements, Measurements)
    return measurements


def checks(
    name: str, operator: str, *cards: int, dtype: str = "bfloat16", **changes: Any
) -> tuple[Check, ...]:
    """The checks of a healthy node; of this operator and type on these cards (none named: on all) changed."""
    keys = {uuid(card) for card in cards}
    return tuple(
        one.model_copy(update=changes)
        if one.check == f"operators.{operator}"
        and one.at.dtype == dtype
        and (not keys or keys & set(one.cards))
        else one
        for one in measured(name).checks
    )


def runs(name: str, status: str, detail: str, *cards: int) -> tuple[StageRun, ...]:
    keys = {uuid(card) for card in cards}
    return tuple(
        run.model_copy(update={"status": status, "detail": detail})
        if run.stage == "operators" and (not keys or keys & set(run.cards))
        else run
        for run in measured(name).stages
    )


def without(name: str, *cards: int) -> tuple[Check, ...]:
    keys = {uuid(card) for card in cards}
    return tuple(
        one
        for one in measured(name).checks
        if one.stage != "operators" or (keys and not keys & set(one.cards))
    )


def case(status: Status, done: str, profile: str = "h200x4", **words: Any) -> Case:
    faults = {f"measurements.{part}": words.pop(part) for part in ("checks", "stages") if part in words}
    return Case(RULE, faults, status, profile=profile, level="standard", done=done, **words)


RAISED: dict[str, Any] = {
    "wrong": 1,
    "compared": 1,
    "examples": ("it raised RuntimeError: HIP error: invalid device function",),
}
NOT_RECORDED = "not asked: the recording does not hold this"

CASES = [
    case(PASS, "healthy", count=4, says="2 operators, all right (bfloat16, float32)."),
    case(PASS, "healthy", "h200x1", count=1),
    case(PASS, "healthy", "cpu"),
    case(
        FAIL,
        "one card of four",
        checks=checks("h200x4", "conv2d", 2, wrong=7, examples=("output [0, 7]: expected 1.5, got 9",)),
        count=1,
        cause=Cause.faulty,
        owner=Owner.provider,
        says="conv2d in bfloat16 (output [0, 7]: expected 1.5, got 9)",
    ),
    case(
        FAIL,
        "all four cards",
        checks=checks("h200x4", "linear", **RAISED),
        count=1,
        cause=Cause.misconfigured,
        owner=Owner.renter,
        says="Wrong on every card: linear in bfloat16 (it raised RuntimeError: HIP error: invalid device",
    ),
    case(
        FAIL,
        "the only card",
        "h200x1",
        checks=checks("h200x1", "linear", **RAISED),
        count=1,
        cause=Cause.misconfigured,
        says="Wrong on GPU 0",
    ),
    case(
        FAIL, "the CPU", "cpu", checks=checks("cpu", "linear", **RAISED), count=1, says="on the CPU: linear"
    ),
    case(
        FAIL,
        "the process ended",
        checks=without("h200x4", 1),
        stages=runs(
            "h200x4", "failed", "died: its worker was ended by SIGSEGV; while it was at: gelu in float32", 1
        ),
        count=1,
        says="An operator ended its process: died: its worker was ended by SIGSEGV; while it was at: gelu",
    ),
    case(
        UNKNOWN,
        "no answer",
        checks=without("h200x4", 1),
        stages=runs("h200x4", "timed_out", "timed_out: no answer within 40 s", 1),
        count=1,
        says="no answer within 40 s",
    ),
    case(UNKNOWN, "nothing compared", checks=checks("h200x4", "linear", 0, compared=0), count=1),
    case(
        SKIPPED,
        "not in the recording",
        checks=without("h200x4"),
        stages=runs("h200x4", "skipped", NOT_RECORDED),
        count=4,
        says="the recording does not hold this",
    ),
    case(
        SKIPPED,
        "older than the stage",
        checks=without("h200x4"),
        stages=tuple(run for run in measured("h200x4").stages if run.stage != "operators"),
        count=1,
        says="not part of this run",
    ),
]


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_cases(one: Case) -> None:
    check(one)


def test_a_node_measured_before_there_was_the_stage_is_judged_as_before() -> None:
    faults = {
        "measurements.checks": without("h200x4"),
        "measurements.stages": tuple(run for run in measured("h200x4").stages if run.stage != "operators"),
    }
    judgement = judge(faulty("h200x4", faults, level="standard"), profile("h200x4"))
    assert judgement.verdict is Verdict.accepted


def test_wrong_operators_are_no_wrong_data() -> None:
    faults = {"measurements.checks": checks("h200x4", "linear", wrong=9)}
    judgement = judge(faulty("h200x4", faults, level="standard"), profile("h200x4"))
    assert {one.status for one in found(judgement, "measurements.data")} == {PASS}
    assert judgement.verdict is Verdict.rejected


def test_a_card_that_computes_wrong_bits_explains_its_operators() -> None:
    wrong = [
        one.model_copy(update={"wrong": 3})
        if one.cards == (uuid(1),) and one.check in ("agreement.self", "operators.linear")
        else one
        for one in measured("h200x4").checks
    ]
    judgement = judge(
        faulty("h200x4", {"measurements.checks": tuple(wrong)}, level="standard"), profile("h200x4")
    )
    (one,) = (one for one in found(judgement, RULE) if one.status is FAIL)
    assert one.root == "measurements.agreement"
