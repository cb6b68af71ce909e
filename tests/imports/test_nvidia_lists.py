"""What nvidia-smi lists card by card."""

from __future__ import annotations

from nodecheck.facts import Absent
from tests.imports import outputs
from tests.imports.outputs import card, cards, imported, kinds, node


def test_the_list_of_cards() -> None:
    found = imported(outputs.listing(cards(8)))
    assert kinds(found) == ["nvidia-smi -L"]
    assert [c.index for c in found.node.known_cards] == list(range(8))
    assert found.node.topology.nvml_count == 8
    assert isinstance(card(found.node).links, Absent)


def test_the_list_with_mig_devices() -> None:
    made = (
        outputs.listing(cards(1))
        + "  MIG 3g.71gb     Device  0: (UUID: MIG-1111)\n  MIG 3g.71gb     Device  1: (UUID: MIG-2)\n"
    )
    modes = card(node(made)).modes
    assert (modes.mig_enabled, modes.mig_instances) == (True, 2)


def test_a_list_that_is_cut_within_a_line() -> None:
    assert isinstance(node(outputs.listing(cards(8))[:-20]).topology.nvml_count, Absent)


def test_links_up_and_down() -> None:
    made = outputs.nvlink(cards(2), lambda c, k: ": <inactive>" if (c, k) == (1, 2) else ": 26.562 GB/s")
    found = imported(made)
    assert kinds(found) == ["nvidia-smi nvlink -s"]
    assert [c.active_links for c in found.node.known_cards] == [4, 3]
    link = card(found.node).links[0]
    assert (link.active, link.speed_mb_per_s) == (True, 26562)


def test_counters_of_errors() -> None:
    def line(_card: int, link: int) -> str:
        return f": Replay Errors: {link}\n\t Link {link}: Recovery Errors: 0\n\t Link {link}: CRC Errors: 7"

    found = imported(outputs.nvlink(cards(1), line))
    assert kinds(found) == ["nvidia-smi nvlink -e"]
    links = card(found.node).links
    assert [(k.replay_errors, k.recovery_errors, k.crc_data_errors) for k in links] == [
        (k, 0, 7) for k in range(4)
    ]
    assert all(isinstance(link.active, Absent) for link in links)


def test_states_and_counters_are_of_the_same_links() -> None:
    made = cards(2)
    found = imported(
        outputs.nvlink(made, lambda _c, _k: ": 26.562 GB/s"),
        outputs.nvlink(made, lambda _c, k: f": Replay Errors: {k}"),
    )
    assert [(link.active, link.replay_errors) for link in card(found.node).links] == [
        (True, k) for k in range(4)
    ]
    assert card(found.node).source_of("links", "") == "nvidia-smi nvlink -s, nvidia-smi nvlink -e"


def test_capabilities_say_nothing_of_the_state() -> None:
    found = imported(outputs.nvlink(cards(1), lambda _c, _k: ", P2P is supported: true"))
    assert kinds(found) == ["nvidia-smi nvlink -c"]
    assert card(found.node).links == ()


def test_a_card_without_links_has_none_told() -> None:
    found = node("$ nvidia-smi nvlink -s\n" + outputs.listing(cards(1)))
    assert isinstance(card(found).links, Absent)
