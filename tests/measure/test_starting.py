"""Workers that start while the node is still being looked at."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.measure import Measuring, start
from nodecheck.profile import load
from nodecheck.sources.channel import Live
from nodecheck.sources.workers import Workers
from tests import healthy
from tests.fakes.workers import FakeWorkers
from tests.healthy import change

PROFILE = load("h200x4")
NODE = healthy.node(PROFILE, level="standard")
CARDS = tuple(card.key for card in NODE.known_cards)


def python() -> str:
    stack = NODE.stack
    assert not isinstance(stack, Absent) and not isinstance(stack.interpreter, Absent)
    return stack.interpreter.path


def test_who_measures_asks_for_the_same_start() -> None:
    asked: list[str] = []
    workers = FakeWorkers(PROFILE, CARDS)

    def ask(question: str) -> Any:
        asked.append(question)
        return workers.ask(question)

    answers = start(Workers(Live(ask)), python(), NODE.known_cards, force=False)
    assert answers.keys() == set(CARDS)
    Measuring(Workers(Live(ask)), NODE, "standard", stages=["context"]).run()
    begun = [question for question in asked if question.startswith("start ")]
    assert len(begun) == 2 and begun[0] == begun[1]


@pytest.mark.parametrize("fault", [("usable", False), ("gpu_utilization_percent", 97)])
def test_a_card_that_may_not_be_loaded_has_no_worker(fault: tuple[str, Any]) -> None:
    node = change(NODE, f"cards.1.{fault[0]}", fault[1])
    workers = FakeWorkers(PROFILE, CARDS)
    assert CARDS[1] not in start(Workers(workers), python(), node.known_cards, force=False)
    forced = start(Workers(workers), python(), node.known_cards, force=True)
    assert (CARDS[1] in forced) == (fault[0] != "usable")


def test_where_nothing_may_be_loaded_nothing_is_asked() -> None:
    node = NODE
    for i in range(4):
        node = change(node, f"cards.{i}.usable", False)
    workers = FakeWorkers(PROFILE, CARDS)
    assert start(Workers(workers), python(), node.known_cards, force=True) == {}
    assert workers.asked == []


@pytest.mark.parametrize(
    "said",
    [Absent(why=Why.not_asked), {}, {"answers": "nonsense"}, {"answers": [], "errors": {}}, "nonsense"],
)
def test_an_answer_of_another_shape_is_no_worker(said: Any) -> None:
    assert start(Workers(Live(lambda _: said)), python(), NODE.known_cards, force=False) == {}
