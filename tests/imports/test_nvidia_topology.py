"""The matrices of `nvidia-smi topo`."""

from __future__ import annotations

import pytest

from nodecheck.facts import Absent
from nodecheck.judge import Status, judge
from nodecheck.profile import load
from tests.imports import outputs
from tests.imports.outputs import card, cards, imported, kinds, node


def test_a_full_mesh() -> None:
    found = imported(outputs.matrix(lambda _a, _b: "NV18"))
    assert kinds(found) == ["nvidia-smi topo -m"]
    assert len(found.node.topology.pairs) == 6
    assert {pair.nvlinks for pair in found.node.topology.pairs} == {18}
    assert found.node.topology.nvml_count == 4
    assert (card(found.node).cpu_affinity, card(found.node).memory_affinity) == ("0-31,64-95", "0")


def test_ways_over_the_bus() -> None:
    found = node(outputs.matrix(lambda a, b: "PIX" if a // 2 == b // 2 else "SYS"))
    ways = {(pair.a, pair.b): (pair.distance, pair.nvlinks) for pair in found.topology.pairs}
    assert ways["card 0", "card 1"] == ("PIX", 0)
    assert ways["card 0", "card 2"] == ("SYS", 0)


@pytest.mark.parametrize("change", ["tabs become blanks", "colours", "quoted", "windows"])
def test_however_it_was_pasted(change: str) -> None:
    made = outputs.matrix(lambda _a, _b: "NV18", ports=("mlx5_0",))
    made = {
        "tabs become blanks": made.replace("\t", "    "),
        "colours": made.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m", 1),
        "quoted": "\n".join(f"> {line}" for line in made.split("\n")),
        "windows": made.replace("\n", "\r\n"),
    }[change]
    found = node(made)
    assert {pair.nvlinks for pair in found.topology.pairs} == {18}
    assert [port.name for port in found.topology.adapters] == ["mlx5_0"]


def test_ports_and_their_names() -> None:
    found = node(outputs.matrix(lambda _a, _b: "NV18", ports=("mlx5_0", "mlx5_bond_0")))
    assert [port.name for port in found.topology.adapters] == ["mlx5_0", "mlx5_bond_0"]
    assert dict(found.topology.adapters[0].distances) == {
        "card 0": "PIX", "card 1": "SYS", "card 2": "SYS", "card 3": "SYS",
    }  # fmt: skip


def test_a_matrix_that_is_cut_leaves_its_missing_pairs_open() -> None:
    made = outputs.matrix(lambda _a, _b: "NV18", count=8)
    found = imported(made[: made.index("\nGPU2")])
    pairs = found.node.topology.pairs
    assert sum(pair.nvlinks == 18 for pair in pairs) == 13
    assert sum(isinstance(pair.nvlinks, Absent) for pair in pairs) == 15
    assert "15 of 28 pairs are missing" in found.not_understood[0]
    judgement = judge(found.node, load("h200x8"))
    said = [f.status for f in judgement.findings if f.id == "topology.pairs.nvlink"]
    assert said.count(Status.unknown) == 15
    assert Status.fail not in said


def test_lines_that_disagree() -> None:
    made = outputs.matrix(lambda a, b: "NV18" if a < b else "SYS", count=2)
    (pair,) = node(made).topology.pairs
    assert isinstance(pair.nvlinks, Absent)
    assert "one line of the matrix says NV18, the other SYS" in pair.nvlinks.detail


def test_one_card() -> None:
    found = imported(outputs.matrix(lambda _a, _b: "", count=1))
    assert (kinds(found), found.node.topology.pairs) == (["nvidia-smi topo -m"], ())


@pytest.mark.parametrize(
    ("letter", "field"), [("r", "p2p_read"), ("w", "p2p_write"), ("n", "p2p_nvlink"), ("a", "p2p_atomics")]
)
def test_peers(letter: str, field: str) -> None:
    made = f"root@node:~# nvidia-smi topo -p2p {letter}\n" + outputs.peers(
        lambda a, b: "OK" if a + b < 4 else "CNS"
    )
    pairs = {(pair.a, pair.b): getattr(pair, field) for pair in node(made).topology.pairs}
    assert pairs["card 0", "card 1"] == "ok"
    assert pairs["card 2", "card 3"] == "chipset_not_supported"


def test_peers_without_the_question() -> None:
    found = imported(outputs.peers(lambda _a, _b: "OK"))
    assert "does not say what was asked" in found.not_understood[0]
    assert isinstance(found.node.topology, Absent)


def test_pairs_get_the_names_of_the_cards() -> None:
    made = cards(4)
    found = imported(
        outputs.matrix(lambda _a, _b: "NV18"),
        outputs.listing(made),
        "$ nvidia-smi topo -p2p n\n" + outputs.peers(lambda _a, _b: "OK"),
    )
    assert len(found.node.known_cards) == 4
    first = found.node.topology.pairs[0]
    assert (first.a, first.b) == (made[0].uuid, made[1].uuid)
    assert {(p.nvlinks, p.p2p_nvlink) for p in found.node.topology.pairs} == {(18, "ok")}
