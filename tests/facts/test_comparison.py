"""Facts are joined on names, not on places; what moves by itself is kept apart from what changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Card, Fact, Host, Node, Why
from nodecheck.facts.comparison import COUNTERS, NAMES, READINGS, Change, compare, join_cards, same_node
from nodecheck.facts.kernel_log import LogEvent
from tests import healthy
from tests.healthy import change
from tests.report import samples

PROFILE = samples.profile(4)
NODE = healthy.node(PROFILE, level="standard")
DENIED = Absent(why=Why.no_permission, detail="Permission denied")


def changes(after: Node, before: Node = NODE) -> dict[str, tuple[Any, Any]]:
    return {f"{c.subject}/{c.path}": (c.before, c.after) for c in compare(before, after).changes}


def elsewhere(node: Node) -> Node:
    """The same bundle as another machine: no name of it is the same."""
    for i in range(len(node.known_cards)):
        node = change(node, f"cards.{i}.identity.serial", f"999{i}")
    node = change(change(node, "host.name", "other"), "host.boot_id", "another")
    text = node.model_dump_json()
    for i, card in enumerate(node.known_cards):
        text = text.replace(str(card.uuid), f"GPU-ffffff{i:02x}-0000-4000-8000-000000000000")
        text = text.replace(str(card.pci_address), f"0001:{i + 1:02x}:00.0")
    return Node.model_validate_json(text)


def test_a_node_does_not_differ_from_itself() -> None:
    result = compare(NODE, NODE)
    assert result.same_node
    assert (result.changes, result.counters) == ((), ())
    assert {card.by for card in result.cards} == {"uuid"}


def test_a_change_is_told_with_its_subject_and_path() -> None:
    after = change(change(NODE, "cards.2.power.limit_watts", 500.0), "host.kernel", "6.9.0")
    before = NODE.known_cards[2].power.limit_watts
    assert isinstance(NODE.host, Host)
    assert changes(after) == {
        "node/host.kernel": (NODE.host.kernel, "6.9.0"),
        "GPU 2/power.limit_watts": (before, 500.0),
    }


def test_what_can_no_longer_be_seen_is_no_other_value() -> None:
    (found,) = compare(NODE, change(NODE, "cards.1.health.ecc_enabled", DENIED)).changes
    assert found.of_sight
    assert found.after == DENIED
    both = [change(NODE, "cards.1.health.ecc_enabled", Absent(why=Why.failed, detail=d)) for d in ("a", "b")]
    assert compare(*both).changes == ()


def test_readings_are_left_out_and_said_to_be() -> None:
    after = change(change(NODE, "cards.*.temperature.gpu_celsius", 71), "host.uptime_seconds", 9e5)
    result = compare(NODE, after)
    assert (result.changes, result.counters) == ((), ())
    assert {"temperatures", "time since boot"} <= set(result.left_out)


def test_counters_are_differences_and_a_reset_is_negative() -> None:
    before = change(NODE, "cards.0.pcie.replays", 7)
    after = change(change(before, "cards.0.pcie.replays", 2), "cards.3.links.5.crc_data_errors", 90)
    counts = {(c.subject, c.path): c.difference for c in compare(before, after).counters}
    assert counts[("GPU 0", "pcie.replays")] == -5
    assert ("GPU 3", "links[5].crc_data_errors") in counts


def test_new_kernel_messages_are_counted() -> None:
    event = LogEvent(kind="xid", code=79, device=healthy.ADDRESSES[1], count=3, text="GPU has fallen off")
    after = change(NODE, "kernel_log.events", (event,))
    (count,) = compare(NODE, after).counters
    assert (count.path, count.before, count.after) == ("kernel_log.events[xid 79 GPU 1].count", 0, 3)


def test_cards_in_another_order_are_the_same_cards() -> None:
    cards = NODE.known_cards
    renumbered = tuple(card.model_copy(update={"index": i}) for i, card in enumerate(reversed(cards)))
    found = changes(NODE.model_copy(update={"cards": renumbered}))
    assert {path.partition("/")[2] for path in found} == {"index"}


def test_a_card_that_was_replaced_is_joined_by_its_slot() -> None:
    after = change(NODE, "cards.1.uuid", "GPU-eeeeeeee-0000-4000-8000-000000000000")
    after = change(after, "cards.1.identity.serial", "777")
    result = compare(NODE, after)
    assert result.cards[1].by == "slot"
    paths = {change.path for change in result.changes if change.subject == "GPU 1"}
    assert paths == {"uuid", "identity.serial"}


def test_a_card_gone_and_a_new_one_are_told_once() -> None:
    fewer = NODE.model_copy(update={"cards": NODE.known_cards[:-1]})
    gone = changes(fewer)
    assert gone["GPU 3/"] == ("NVIDIA H200", None)
    assert not any("GPU 3" in path for path in gone if path != "GPU 3/")
    assert changes(NODE, fewer)["GPU 3/"] == (None, "NVIDIA H200")


def test_two_nodes_are_compared_slot_by_slot_without_their_names() -> None:
    result = compare(NODE, elsewhere(NODE))
    assert not result.same_node
    assert {card.by for card in result.cards} == {"slot"}
    assert result.changes == ()
    assert set(NAMES) <= set(result.left_out)


def test_without_slots_the_order_of_the_addresses_joins_two_nodes() -> None:
    one, other = (change(n, "cards.*.identity.module_id", DENIED) for n in (NODE, elsewhere(NODE)))
    assert [card.by for card in join_cards(one, other)] == ["order"] * 4


def test_pseudonyms_make_no_two_nodes_one() -> None:
    nodes = []
    for boot in ("a", "b"):
        node = change(change(NODE, "host.boot_id", boot), "host.name", "host-1")
        for i in range(4):
            node = change(node, f"cards.{i}.uuid", f"GPU-00000000-0000-4000-8000-{i + 1:012d}")
        nodes.append(node)
    assert not same_node(*nodes)
    assert "uuid" not in {card.by for card in join_cards(*nodes)}


@pytest.mark.parametrize("part", ["cards", "topology", "host", "stack", "kernel_log", "measurements"])
def test_a_part_that_was_not_seen_is_one_change(part: str) -> None:
    (found,) = compare(NODE, change(NODE, part, DENIED)).changes
    assert (found.path, found.after) == (part, DENIED)


def test_every_name_in_the_tables_is_a_field() -> None:
    models: dict[str, type[Fact]] = {}
    waiting = [Fact]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            models[kind.__name__] = kind
            waiting.append(kind)
    tables = [*READINGS.values(), *NAMES.values(), tuple(COUNTERS)]
    names = [name.split(".") for table in tables for name in table]
    assert [name for name in names if name[1] not in models[name[0]].model_fields] == []


FACTS = st.sampled_from(
    [
        ("cards.{}.power.limit_watts", 123.0), ("cards.{}.memory.total_bytes", 5), ("cards.{}.uuid", DENIED),
        ("cards.{}.pci_address", DENIED), ("cards.{}.links", DENIED), ("cards.{}.identity.module_id", 3),
        ("cards.{}.identity.name", "NVIDIA H20"), ("cards.{}.modes.persistence", DENIED),
    ]
)  # fmt: skip


@given(st.lists(st.tuples(FACTS, st.integers(0, 3)), max_size=4))
def test_what_changed_one_way_changes_back(planted: list[tuple[tuple[str, Any], int]]) -> None:
    after = NODE
    for (path, value), i in planted:
        after = change(after, path.format(i), value)
    there, back = compare(NODE, after), compare(after, NODE)

    def turned(found: tuple[Change, ...]) -> set[tuple[str, str, str]]:
        return {(c.path, repr(c.after), repr(c.before)) for c in found}

    assert turned(there.changes) == {(c.path, repr(c.before), repr(c.after)) for c in back.changes}
    assert bool(there.changes) == (after != NODE)
    assert isinstance(after.known_cards[0], Card)
