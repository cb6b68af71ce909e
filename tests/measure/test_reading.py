"""Answers of any shape are read without a crash, and what is strange in them is no pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodecheck.facts import Measurements
from nodecheck.measure import Measuring
from nodecheck.measure.reading import load, siblings
from nodecheck.profile import load as profile
from nodecheck.sources.channel import Live
from nodecheck.sources.workers import Workers
from tests import healthy
from tests.fakes.workers import FakeWorkers

PROFILE = profile("h200x2")
NODE = healthy.node(PROFILE, level="standard")
CARDS = tuple(card.key for card in NODE.known_cards)
KEYS = (
    "answers", "errors", "samples", "seconds", "rows", "checks", "measure", "unit", "values", "check", "compared",
    "wrong", "peer", "digests", "size_bytes", "message", "stacks", "log", "skipped", "absent", "access",
)  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["GB/s", "hbm.copy", "values", *CARDS]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(
                [
                    "answers",
                    "errors",
                    "samples",
                    "seconds",
                    "rows",
                    "checks",
                    "measure",
                    "unit",
                    "values",
                    "check",
                    "compared",
                    "wrong",
                    "peer",
                    "digests",
                    "size_bytes",
                    "message",
                    "stacks",
                    "log",
                    "skipped",
                    "absent",
                    "access",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


def measured(answer: Any, only: str = "") -> Measurements:
    """Everything, where the workers say this; or only to questions that begin so."""
    crew = FakeWorkers(PROFILE, CARDS)
    asked = Live(lambda question: answer if question.startswith(only) else crew.ask(question))
    return Measuring(Workers(asked), NODE, "standard").run()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
@given(JSON)
def test_an_answer_of_any_shape_is_read(answer: Any) -> None:
    found = measured(answer)
    assert not [run for run in found.stages if run.status == "done" and run.cards]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from(CARDS), JSON), JSON, JSON, JSON)
def test_answers_of_cards_may_be_anything(answers: Any, errors: Any, samples: Any, seconds: Any) -> None:
    told = {"answers": answers, "errors": errors, "samples": samples, "seconds": seconds}
    for stage in ("memory", "pairs", "collectives", "transport"):
        found = measured(told, stage)
        assert Measurements.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "row",
    [
        {"measure": "hbm.copy", "unit": "GB/s", "values": []},
        {"measure": "hbm.copy", "unit": "GB/s", "values": [4300.0, float("nan")]},
        {"measure": "hbm.copy", "unit": "GB/s", "values": [-1.0]},
        {"measure": "hbm.copy", "unit": "GB/s", "values": [True]},
        {"measure": "hbm.copy", "unit": "GB/s", "values": [10**400]},
        {"measure": "hbm.copy", "unit": "GB/s", "values": [1.7e308, 1.7e308]},
        {"measure": "hbm.copy", "unit": "furlongs", "values": [4300.0]},
        {"measure": "<script>", "unit": "GB/s", "values": [4300.0]},
        {"unit": "GB/s", "values": [4300.0]},
        "hbm.copy",
        None,
    ],
)
def test_a_row_that_is_none_fails_the_stage(row: Any) -> None:
    good = {"measure": "hbm.read", "unit": "GB/s", "values": [4300.0]}
    said = {"answers": {card: {"rows": [row, good], "checks": []} for card in CARDS}, "seconds": 1}
    found = measured(said, "hbm")
    assert {run.status for run in found.stages if run.stage == "hbm"} == {"failed"}
    assert {figure.measure for figure in found.figures if figure.stage == "hbm"} == {"hbm.read"}


@pytest.mark.parametrize("wrong", [-1, None, "0", 0.0, True, 2**70])
def test_a_check_that_does_not_say_how_much_was_wrong_is_no_pass(wrong: Any) -> None:
    check = {"check": "memory.pattern", "compared": 5, "wrong": wrong}
    found = measured({"answers": {card: {"checks": [check]} for card in CARDS}}, "memory")
    assert {run.status for run in found.stages if run.stage == "memory"} == {"failed"}
    assert not [check for check in found.checks if check.stage == "memory"]


def test_a_pair_that_nobody_asked_for_is_none() -> None:
    row = {"measure": "pairs.one_way", "unit": "GB/s", "values": [380.0], "peer": "GPU-of-another-node"}
    found = measured({"answers": {CARDS[0]: {"rows": [row]}}}, "pairs")
    assert {run.status for run in found.stages if run.stage == "pairs"} == {"failed"}
    assert not [figure for figure in found.figures if figure.stage == "pairs"]


def test_samples_that_tell_nothing_are_absent() -> None:
    told = load([[0.0, None, None, None, None, None, None], "nonsense", [1]])
    assert json.loads(told.model_dump_json())["sm_mhz"]["why"] == "not_supported"
    assert json.loads(load([]).model_dump_json())["why"] == "not_present"


def test_siblings_are_of_one_model() -> None:
    digests = {"a": {"x": "11"}, "b": {"x": "22"}, "c": {"x": "11"}}
    models = {"a": "one", "b": "another", "c": "one"}
    found = list(siblings(digests, models))
    assert {check.cards[0] for check in found} == {"a", "c"}
    assert not any(check.wrong for check in found)
