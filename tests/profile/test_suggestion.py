"""Which profile is suggested for a node, and when none is."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import NOT_ASKED, Absent, Node, Why
from nodecheck.profile import load, names, suggest
from tests import healthy

LOST = Absent(why=Why.failed, detail="NVMLError_GpuIsLost")
FAILED = Absent(why=Why.failed, detail="NVMLError_Unknown")
TIMED_OUT = Absent(why=Why.timed_out, detail="no answer in 10 s")
NOT_PRESENT = Absent(why=Why.not_present, detail="no such file")


@pytest.mark.parametrize("view", ["bare", "vm", "container"])
@pytest.mark.parametrize("name", names())
def test_a_healthy_node_is_recognised(name: str, view: Any) -> None:
    assert suggest(healthy.node(load(name), view=view)) == name


def test_cards_of_a_larger_board_are_counted_by_what_the_driver_hands_out() -> None:
    assert suggest(healthy.node(load("h200x4"), board=8)) == "h200x4"


def changed(name: str, **facts: Any) -> Node:
    node = healthy.node(load(name))
    for path, value in facts.items():
        node = healthy.change(node, path.replace("__", "."), value)
    return node


def test_a_card_without_an_id_is_known_by_its_name() -> None:
    assert (
        suggest(changed("h100x2", cards__0__identity__pci_id=LOST, cards__1__identity__pci_id=LOST))
        == "h100x2"
    )


def test_an_id_is_trusted_more_than_a_name() -> None:
    assert suggest(changed("h100x1", cards__0__identity__name="NVIDIA H200")) == "h100x1"


def test_a_lost_card_is_taken_for_what_the_others_are() -> None:
    lost = {"cards__3__identity__pci_id": LOST, "cards__3__identity__name": LOST}
    assert suggest(changed("h200x8", **lost)) == "h200x8"


@pytest.mark.parametrize(
    "node",
    [
        changed("h200x2", cards__1__identity__pci_id="10de:2330"),
        changed("h200x1", cards__0__identity__pci_id="10de:1eb8", cards__0__identity__name="Tesla T4"),
        changed("h200x1", cards__0__identity__pci_id=LOST, cards__0__identity__name=LOST),
        healthy.change(healthy.node(load("h200x8")), "cards", healthy.node(load("h200x8")).known_cards * 9),
        changed("cpu", cards=FAILED),
        changed("cpu", cards=TIMED_OUT),
        changed("cpu", cards=NOT_ASKED),
        changed("cpu", topology=TIMED_OUT),
    ],
    ids=[
        "mixed cards",
        "a card nobody ships a profile for",
        "one card, which says nothing",
        "as many cards as nobody sells",
        "NVML failed",
        "NVML hung",
        "nobody asked",
        "the PCI bus was not seen",
    ],
)
def test_where_it_cannot_be_said_nothing_is_suggested(node: Node) -> None:
    assert suggest(node) is None


def test_without_a_driver_the_bus_says_what_is_there() -> None:
    assert suggest(changed("h100x8", cards=NOT_PRESENT)) == "h100x8"
    assert suggest(changed("a100x4", cards=())) == "a100x4"


def test_a_machine_without_any_card_is_cpu() -> None:
    assert suggest(changed("cpu", cards=())) == "cpu"
    assert suggest(changed("cpu", topology=NOT_PRESENT)) == "cpu"
