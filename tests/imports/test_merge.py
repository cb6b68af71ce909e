"""Several outputs of one node."""

from __future__ import annotations

from dataclasses import replace

from nodecheck.facts import Absent, Why
from nodecheck.judge import Verdict, judge
from nodecheck.profile import load
from tests.imports import outputs
from tests.imports.outputs import card, cards, imported, node


def test_cards_are_joined_on_their_uuid() -> None:
    made = cards(4)
    found = imported(outputs.xml(made), outputs.listing(list(reversed(made))))
    assert len(found.node.known_cards) == 4
    assert found.conflicts == ()


def test_cards_are_joined_on_their_address() -> None:
    made = cards(4)
    found = imported(outputs.xml([replace(one, uuid="N/A") for one in made]), outputs.table(made))
    assert len(found.node.known_cards) == 4
    assert found.conflicts == ()


def test_cards_are_joined_on_their_number() -> None:
    found = imported(outputs.matrix(lambda _a, _b: "NV18"), outputs.listing(cards(4)))
    assert len(found.node.known_cards) == 4


def test_a_number_does_not_join_what_an_address_parts() -> None:
    made = cards(2)
    other = [replace(one, address="00000000:AA:00.0", uuid="N/A") for one in made[:1]]
    found = imported(outputs.xml(made), outputs.table(other))
    assert len(found.node.known_cards) == 3
    assert "different cards" in found.conflicts[0]


def test_a_contradiction_is_not_known_and_is_shown() -> None:
    made = cards(1)
    found = imported(outputs.xml(made), outputs.table([replace(made[0], name="NVIDIA L20X")]))
    name = card(found.node).identity.name
    assert isinstance(name, Absent)
    assert name.why is Why.failed
    assert name.detail == "nvidia-smi -q -x says NVIDIA H200, nvidia-smi says NVIDIA L20X"
    assert found.conflicts == (f"GPU 0: identity.name (product name): {name.detail}",)


def test_a_third_output_does_not_resolve_a_contradiction() -> None:
    made = cards(1)
    other = [replace(made[0], name="NVIDIA L20X")]
    found = imported(outputs.xml(made), outputs.table(other), outputs.listing(made))
    assert isinstance(card(found.node).identity.name, Absent)
    assert len(found.conflicts) == 1


def test_two_outputs_of_one_kind_are_told_apart_by_their_files() -> None:
    made = cards(1)
    found = imported(outputs.xml(made), outputs.xml([replace(made[0], limit="500.00 W")]))
    assert "nvidia-smi -q -x (a) says 700.0, nvidia-smi -q -x (b) says 500.0" in found.conflicts[0]


def test_what_moves_is_no_contradiction() -> None:
    made = cards(1)
    found = imported(
        outputs.table([replace(made[0], temperature="80 C", used="9000 MiB")]), outputs.xml(made)
    )
    assert found.conflicts == ()
    assert card(found.node).temperature.gpu_celsius == 30


def test_of_what_grows_the_most_counts() -> None:
    made = cards(1)
    later = [replace(made[0], corrected="5", remapped="1")]
    for files in ((made, later), (later, made)):
        found = imported(*(outputs.xml(one) for one in files))
        assert found.conflicts == ()
        assert card(found.node).health.ecc_volatile.corrected == 5
        assert card(found.node).health.remapped_rows_corrected == 1


def test_a_card_that_was_lost_in_one_of_two_looks_is_lost() -> None:
    made = cards(2)
    later = [made[0], replace(made[1], memory="GPU is lost")]
    found = imported(outputs.xml(made), outputs.xml(later))
    assert [(c.lost, c.usable) for c in found.node.known_cards] == [(False, True), (True, False)]
    assert card(found.node, 1).memory.total_bytes == 143771 * 1024**2


def test_every_fact_names_the_output_that_told_it() -> None:
    made = cards(4)
    found = node(
        outputs.xml(made), outputs.nvlink(made, lambda _c, _k: ": 26.562 GB/s", links=18), outputs.table(made)
    )
    judgement = judge(found, load("h200x4"))
    witness = {f.id: f.observed_from for f in judgement.findings if f.subject.kind == "card"}
    assert witness["cards.model"] == "nvidia-smi -q -x"
    assert witness["topology.nvlink.active_links"] == "nvidia-smi nvlink -s"
    assert witness["cards.compute_mode"] == "nvidia-smi"


def test_what_nobody_pasted_was_not_asked_and_holds_up_the_verdict() -> None:
    made = cards(4)
    found = node(
        outputs.xml(made),
        outputs.nvlink(made, lambda _c, _k: ": 26.562 GB/s", links=18),
        outputs.matrix(lambda _a, _b: "NV18"),
        "[ 12.000000] usb 1-2: hello\n",
    )
    assert found.host == Absent(why=Why.not_asked)
    judgement = judge(found, load("h200x4"))
    assert judgement.verdict is Verdict.incomplete
    assert [door.name for door in found.doors] == ["nvml", "kernel_log"]


def test_a_driver_of_two_versions_is_a_contradiction() -> None:
    found = imported(outputs.xml(cards(1)), outputs.xml(cards(1), driver="535.54.03"))
    assert any("driver.version" in conflict for conflict in found.conflicts)
    assert isinstance(found.node.stack.driver.version, Absent)
